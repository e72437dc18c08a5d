"""One target under atheris, in a process of its own: `python -m fuzz.run TARGET FOLDER SECONDS`.

Each new kind of exception is a finding: FOLDER/findings gets the input and the traceback, and the run goes on. A crash,
more than 20 s or more than 2 GB for one input end the process; libFuzzer leaves the input there.
"""

from __future__ import annotations

import gc
import hashlib
import logging
import sys
import tempfile
import traceback
from contextlib import ExitStack
from pathlib import Path
from types import FunctionType

import atheris

from fuzz.base import Place
from fuzz.targets import ALL


def instrument(packages: tuple[str, ...] = ("considerate", "msgspec", "json", "csv", "fuzz", "tests")) -> None:
    """Count the coverage of functions that are loaded: an editable install is imported past atheris's own hook.

    Compiled code has no counters. Its twins in Python have: what they do tells one input from another.
    """
    for function in gc.get_objects():
        if isinstance(function, FunctionType) and str(function.__module__).partition(".")[0] in packages:
            atheris.instrument_func(function)


def main(name: str, folder: Path, seconds: int) -> None:
    logging.disable()
    corpus, findings = folder / "corpus", folder / "findings"
    for path in (corpus, findings):
        path.mkdir(parents=True, exist_ok=True)
    target = ALL[name]
    for seed in target.seeds():
        (corpus / hashlib.sha256(seed).hexdigest()[:20]).write_bytes(seed)
    memory = Path("/dev/shm")
    place = Place(Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else None)), ExitStack())
    check = target.prepare(place)
    instrument()
    seen = set[str]()

    def one_input(data: bytes) -> None:
        try:
            check(data)
        except Exception as error:
            kind = _kind(error)
            if kind not in seen:
                seen.add(kind)
                (findings / kind).write_bytes(data)
                (findings / f"{kind}.txt").write_text(traceback.format_exc())

    limits = [f"-max_total_time={seconds}", "-timeout=20", "-rss_limit_mb=2048", "-max_len=20000", "-verbosity=1"]
    atheris.Setup([sys.argv[0], *limits, f"-artifact_prefix={findings}/", str(corpus)], one_input)
    atheris.Fuzz()


def _kind(error: Exception) -> str:
    """Name of an exception and of the line that raised it, or that called `near`."""
    last = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.name != "near"][-1]
    return f"{type(error).__name__}-{Path(last.filename).stem}-{last.lineno}"


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
