"""What a section gives back, how it is written down, and the clock that all of them share."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

Row = dict[str, Any]
THREADS = 2  # of everyone, where a section does not say otherwise
PACKAGES = (
    "considerate",
    "numpy",
    "scipy",
    "pyarrow",
    "implicit",
    "cornac",
    "rectools-lightfm",
    "faiss-cpu",
    "usearch",
    "threadpoolctl",
)


@dataclass
class Section:
    """Tables of plain rows, remarks on how they were made, and the figures that the issue asks for."""

    title: str
    tables: dict[str, list[Row]] = field(default_factory=dict)  # by heading
    notes: list[str] = field(default_factory=list)
    must_show: list[Row] = field(default_factory=list)
    raw: dict[str, Any] = field(default_factory=dict)  # for the JSON alone: every repeat, curves
    seconds: float = 0.0  # that the section took
    measured: str = ""  # when, and how busy the machine was

    def must(self, what: str, measured: float | None, *, most: float | None = None, least: float | None = None) -> None:
        """Hold a figure against its target; None is a figure that this run does not have."""
        target = f"at most {most:g}" if most is not None else f"at least {least:g}"
        if measured is None:
            verdict = "not measured"
        else:
            met = measured <= most if most is not None else measured >= (least or 0.0)
            verdict = "met" if met else "not met"
        self.must_show.append({"must show": what, "target": target, "measured": measured, "verdict": verdict})

    @classmethod
    def load(cls, path: Path) -> Section:
        return cls(**json.loads(path.read_text()))


def interleaved(functions: Mapping[str, Callable[[], Any]], repeats: int, warm: int = 1) -> dict[str, list[float]]:
    """Seconds of every call, the functions taking turns, so that a disturbance hits all of them alike."""
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for repeat in range(warm + repeats):
        for name, function in functions.items():
            begun = time.perf_counter()
            function()
            if repeat >= warm:
                seconds[name].append(time.perf_counter() - begun)
    return seconds


def median(values: Sequence[float]) -> float:
    return float(statistics.median(values))


def in_a_process(module: str, name: str, *arguments: Any) -> Any:
    """What a function of a module of the benchmarks gives in a fresh process; arguments and answer are plain values."""
    code = f"import json, sys; from benchmarks import {module}; "
    code += f"print(json.dumps({module}.{name}(*json.loads(sys.argv[1]))))"
    asked = [sys.executable, "-c", code, json.dumps(arguments)]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{name}{arguments} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def peak_bytes() -> int:
    """The most memory that this process has had resident.

    Linux hands ru_maxrss of a parent on to the child that it starts, so the kernel's mark of this very address
    space, VmHWM, is read where there is one.
    """
    try:
        with open("/proc/self/status") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def machine() -> Row:
    """Where and with what this was measured."""
    from considerate.kernels import compiled

    model, memory = platform.processor(), None
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
        memory = round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9, 1)
    except (OSError, StopIteration, ValueError):
        pass
    versions = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "not installed"
    return {
        "processor": model,
        "processors": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gb": memory,
        "system": platform.platform(),
        "instruction_set": compiled.instruction_set(),
        "threads": THREADS,
        "versions": versions,
    }


def shown(value: Any) -> str:
    """A value as a reader wants it: four digits, thousands apart."""
    if value is None:
        return "-"
    if isinstance(value, bool | str):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def table(rows: Sequence[Row]) -> str:
    """Rows as a Markdown table that is legible as text; the columns are all the keys, in order of appearance."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    cells = [[shown(row.get(column)) for column in columns] for row in rows]
    widths = [max(len(line[i]) for line in [columns, *cells]) for i in range(len(columns))]
    numeric = [all(not isinstance(row.get(column), str) for row in rows) for column in columns]

    def line(values: Sequence[str]) -> str:
        padded = [v.rjust(w) if n else v.ljust(w) for v, w, n in zip(values, widths, numeric)]
        return "| " + " | ".join(padded) + " |"

    rule = "|" + "|".join("-" * (w + 1) + (":" if n else "-") for w, n in zip(widths, numeric)) + "|"
    return "\n".join([line(columns), rule, *map(line, cells)])


def markdown(name: str, section: Section) -> str:
    """One section of results.md."""
    parts = [f"## {section.title}", f"`python -m benchmarks {name}`, {section.seconds:.0f} s, {section.measured}"]
    parts += ["\n".join(f"- {note}" for note in section.notes)] if section.notes else []
    for heading, rows in section.tables.items():
        parts += [f"**{heading}**", table(rows)] if rows else []
    parts += [table(section.must_show)] if section.must_show else []
    return "\n\n".join(parts) + "\n"


def command(name: str, run: Callable[..., Section], **further: Mapping[str, Any]) -> None:
    """The main() of a section: print it, and keep it where --json says. `further` options go to `run` by their names,
    each with the keywords of `add_argument`."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}")
    parser.add_argument("--quick", action="store_true", help="small and few: a smoke run, not a measurement")
    parser.add_argument("--json", type=Path, help="also write the section here")
    for option, keywords in further.items():
        parser.add_argument(f"--{option}", **keywords)
    options = parser.parse_args()
    measured = time.strftime("%Y-%m-%d %H:%M %z")
    if hasattr(os, "getloadavg"):
        measured += f", load average before it {os.getloadavg()[0]:.1f}"
    begun = time.perf_counter()
    section = run(options.quick, **{option: getattr(options, option) for option in further})
    section.measured = measured
    section.seconds = time.perf_counter() - begun
    if options.quick:
        section.notes.insert(0, "A smoke run (--quick): sizes and repeats are too small for the figures to mean much.")
    if options.json:
        options.json.write_text(json.dumps(asdict(section)))
    print(markdown(name, section), flush=True)
