"""What a service is started with. It reaches worker processes through one environment variable."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass

from considerate.errors import UsageError
from considerate.service.access import Keys

VARIABLE = "CONSIDERATE_SERVE"


@dataclass(frozen=True, kw_only=True)
class ServiceSettings:
    """How a model is served."""

    model: str  # the path of a file, or of a folder of shards
    events: str | None = None  # the path of the SQLite file; None: events are refused
    api_key_file: str | None = None
    allowed_hosts: tuple[str, ...] = ()  # names that clients may use where no key is asked for
    cors_origins: tuple[str, ...] = ()
    max_body: int = 1_000_000  # bytes
    rate: float = 0.0  # requests a second of one client; 0: no limit
    timeout: float = 10.0  # seconds that a request may wait for its body, and for its answer
    most_waiting: int = 1_000  # requests; further ones are told to come back
    poll: float = 1.0  # seconds between looks at the model's path
    access_log: bool = False
    waits: bool = False  # whether a worker that cannot start waits until it can; it was seen that one can

    def keys(self) -> Keys | None:
        """The keys in their file; None where none is named."""
        return None if self.api_key_file is None else Keys.read(self.api_key_file)

    def to_environment(self) -> None:
        """Leave them for the workers that are started from here."""
        os.environ[VARIABLE] = json.dumps(asdict(self))

    @classmethod
    def from_environment(cls) -> ServiceSettings:
        """As `to_environment` left them, or as anyone writes them for another server than ours."""
        text = os.environ.get(VARIABLE)
        if text is None:
            raise UsageError(f'{VARIABLE} is not set; give the settings in it as JSON, such as {{"model": "m"}}.')
        try:
            values = json.loads(text)
            lists = {name: tuple(values.get(name, ())) for name in ("allowed_hosts", "cors_origins")}
            return cls(**values | lists)
        except (ValueError, TypeError, AttributeError) as error:
            raise UsageError(f"{VARIABLE} does not hold settings of a service ({error}).") from error
