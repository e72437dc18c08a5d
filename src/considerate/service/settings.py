"""Settings of a service. Worker processes get them through one environment variable."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass

from considerate.errors import UsageError
from considerate.service.access import Keys

VARIABLE = "CONSIDERATE_SERVE"


@dataclass(frozen=True, kw_only=True)
class ServiceSettings:
    """Settings of a service."""

    model: str  # the path of a file, or of a folder of shards
    events: str | None = None  # the path of the SQLite file; None: events are refused
    api_key_file: str | None = None
    allowed_hosts: tuple[str, ...] = ()  # host names that clients may use if there are no keys
    cors_origins: tuple[str, ...] = ()
    max_body: int = 1_000_000  # bytes
    rate: float = 0.0  # requests per second of one client; 0: no limit
    timeout: float = 10.0  # seconds that a request may wait for its body, and for its answer
    most_waiting: int = 1_000  # requests that may wait; further ones are refused
    poll: float = 1.0  # seconds between checks of the model's path
    access_log: bool = False
    waits: bool = False  # whether a worker that cannot start retries until it can

    def keys(self) -> Keys | None:
        """Read the file of keys; None without a file."""
        return None if self.api_key_file is None else Keys.read(self.api_key_file)

    def to_environment(self) -> None:
        """Store the settings for the workers that this process starts."""
        os.environ[VARIABLE] = json.dumps(asdict(self))

    @classmethod
    def from_environment(cls) -> ServiceSettings:
        """Read the settings of `to_environment`, or those that a user wrote for another server."""
        text = os.environ.get(VARIABLE)
        if text is None:
            raise UsageError(f'{VARIABLE} is not set; set it to the settings as JSON, such as {{"model": "m"}}.')
        try:
            values = json.loads(text)
            lists = {name: tuple(values.get(name, ())) for name in ("allowed_hosts", "cors_origins")}
            return cls(**values | lists)
        except (ValueError, TypeError, AttributeError) as error:
            raise UsageError(f"{VARIABLE} does not hold settings of a service ({error}).") from error
