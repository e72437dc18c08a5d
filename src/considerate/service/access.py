"""Access: API keys with scopes; without keys, only names of this machine and pages of this service."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Collection, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from considerate.errors import UsageError
from considerate.service.problems import Problem, shortened

Scope = Literal["serve", "history", "admin"]
Needed = Literal["nothing", "any key"] | Scope  # by a route
SCOPES: dict[str, str] = {
    "serve": "ask for recommendations and store events",
    "history": "read and erase what is stored of a user",
    "admin": "read the model again",
}
LEAST_KEY = 16  # characters
SAFE = ("GET", "HEAD", "OPTIONS")  # methods that change nothing


class Keys:
    """API keys and their scopes. A client sends `Authorization: Bearer KEY` or `X-API-Key: KEY`."""

    def __init__(self, scopes: Mapping[str, Collection[str]]) -> None:
        self._scopes = {_digest(key.encode()): frozenset(some) for key, some in scopes.items()}

    @classmethod
    def read(cls, path: str) -> Keys:
        """Read a file with one key that may do everything, or with lines `SCOPE:KEY`; raise UsageError otherwise."""
        try:
            lines = Path(path).read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
            raise UsageError(f"{path}: cannot be read ({reason}); give a file with one key.") from error
        lines = [line.strip() for line in lines if line.strip()]
        if len(lines) == 1 and lines[0].partition(":")[0] not in SCOPES:
            return cls({_checked(lines[0], path): SCOPES})
        scopes: dict[str, set[str]] = {}
        for line in lines:
            scope, _, key = line.partition(":")
            if scope not in SCOPES:
                raise UsageError(
                    f"{path}: a line has no scope; give one key alone, or SCOPE:KEY on each line, where SCOPE is "
                    f"{', '.join(SCOPES)}."
                )
            scopes.setdefault(_checked(key, path), set()).add(scope)
        if not any("serve" in some for some in scopes.values()):
            raise UsageError(f"{path}: no key has the scope serve; give a line serve:KEY.")
        return cls(scopes)

    def check(self, headers: Mapping[bytes, bytes], needed: Needed) -> None:
        """Raise a problem if the client's key has not the needed scope. All keys are compared, in constant time."""
        scheme, _, bearer = headers.get(b"authorization", b"").partition(b" ")
        given = _digest(bearer.strip() if scheme.lower() == b"bearer" else headers.get(b"x-api-key", b""))
        found = [scopes for digest, scopes in self._scopes.items() if hmac.compare_digest(given, digest)]
        if not found:
            detail = "Send a key of the service as `Authorization: Bearer KEY`."
            raise Problem("no-key", detail, {"WWW-Authenticate": "Bearer"})
        if needed != "any key" and needed not in found[0]:
            may = " and ".join(SCOPES[scope] for scope in SCOPES if scope in found[0])
            raise Problem("wrong-scope", f"This key may {may}; this address needs a key with the scope {needed}.")


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def _checked(key: str, path: str) -> str:
    if len(key) < LEAST_KEY or not key.isascii() or not key.isprintable() or " " in key:
        raise UsageError(
            f"{path}: its key must be {LEAST_KEY} or more printable ASCII characters without spaces; make one with "
            "`openssl rand -hex 32`."
        )
    return key


class Callers:
    """Access without keys: for clients that name this machine, and for pages of this service.

    A web page can let its own name point to this machine's address (DNS rebinding). Its requests then have the origin
    of the service, but their Host is that name, which is neither an IP address nor a loopback name.
    """

    def __init__(self, allowed_hosts: Collection[str] = (), origins: Collection[str] = ()) -> None:
        self._names = {"localhost", *(name.lower().rstrip(".") for name in allowed_hosts)}
        self._origins = frozenset(origins)
        self._is_ours = lru_cache(256)(self._names_us)

    def check(self, method: str, headers: Mapping[bytes, bytes]) -> None:
        """Raise a problem if the Host is not ours, or if a page of another origin wants to change something."""
        host = headers.get(b"host", b"").decode("latin-1")
        if not self._is_ours(host):
            raise Problem(
                "wrong-host",
                f"The Host is {shortened(host)}. Without a key this service answers to localhost and to addresses "
                "alone; start it with --allow-host NAME or with --api-key-file.",
            )
        origin = headers.get(b"origin")
        if method not in SAFE and origin is not None and not self._may_write(origin.decode("latin-1"), host):
            raise Problem(
                "wrong-origin",
                f"A page of {shortened(origin.decode('latin-1'))} may not do this; start the service with "
                "--cors-origin for that origin.",
            )

    def _names_us(self, host: str) -> bool:
        name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
        if name.lower().rstrip(".") in self._names:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    def _may_write(self, origin: str, host: str) -> bool:
        if origin in self._origins or "*" in self._origins:
            return True
        try:
            return urlsplit(origin).netloc.lower() == host.lower()
        except ValueError:
            return False
