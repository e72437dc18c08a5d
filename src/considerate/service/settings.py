"""What a service is started with. It reaches worker processes through one environment variable."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from considerate.errors import UsageError

VARIABLE = "CONSIDERATE_SERVE"


@dataclass(frozen=True, kw_only=True)
class ServiceSettings:
    """How a model is served."""

    model: str  # the path of a file, or of a folder of shards
    events: str | None = None  # the path of the SQLite file; None: events are refused
    api_key_file: str | None = None
    cors_origins: tuple[str, ...] = ()
    max_body: int = 1_000_000  # bytes
    rate: float = 0.0  # requests a second of one client; 0: no limit
    timeout: float = 10.0  # seconds that a request may wait for its body, and for its answer
    most_waiting: int = 1_000  # requests; further ones are told to come back
    poll: float = 1.0  # seconds between looks at the model's path
    access_log: bool = False
    waits: bool = False  # whether a worker that cannot start waits until it can; it was seen that one can

    def api_key(self) -> str | None:
        """The key in its file; UsageError where there is none."""
        if self.api_key_file is None:
            return None
        try:
            key = Path(self.api_key_file).read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
            raise UsageError(f"{self.api_key_file}: cannot be read ({reason}); give a file with one key.") from error
        if len(key) < 16 or not key.isascii() or not key.isprintable() or " " in key:
            raise UsageError(
                f"{self.api_key_file}: its key must be 16 or more printable ASCII characters without spaces; make one "
                "with `openssl rand -hex 32`."
            )
        return key

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
            return cls(**values | {"cors_origins": tuple(values.get("cors_origins", ()))})
        except (ValueError, TypeError, AttributeError) as error:
            raise UsageError(f"{VARIABLE} does not hold settings of a service ({error}).") from error
