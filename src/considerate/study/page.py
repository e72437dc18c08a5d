"""The report of a study: all numbers as JSON, the figures, and one self-contained HTML page.

This file computes the values for the page. Its words are in `templates/` and `captions.py`.
"""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from html import escape
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import numpy as np

from considerate.errors import OutputError, UsageError
from considerate.storage.files import atomic_write, check_writable
from considerate.study import captions
from considerate.study.captions import Bin
from considerate.study.figures.style import DARK
from considerate.study.names import EXPLAINED, METRICS, plain_name
from considerate.study.results import PAPER_TAUS, Results, degree_range, results_to_json, took

CACHE = ".cache"  # folder of the stages in the report's folder
PARTS = {"figures": "matplotlib", "page": "jinja2"}  # part of the report -> the package that it needs
LARGE = 30  # least number of likes in a stratum for a sentence
BOARD = ("S_rank", "S_rank tail", "Recall@20", "NDCG@20")  # the metrics of the first table


@contextmanager
def open_report(folder: str | os.PathLike[str]) -> Iterator[Path]:
    """Create the report's folder if it is missing, and check that it is writable before any work is done.

    After an error, remove the new folders if they are empty.
    """
    path = Path(folder)
    if path.exists() and not path.is_dir():
        raise OutputError(f"{path}: is a file, but a report is a folder; give another name.")
    new = [parent for parent in (path, *path.parents) if not parent.exists()]
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{path}: the folder cannot be created ({error.strerror}); choose another place.") from error
    try:
        check_writable(path / "results.json")
        yield path
    except BaseException:
        for parent in new:
            with suppress(OSError):  # it is not empty
                parent.rmdir()
        raise


def missing_parts() -> dict[str, str]:
    """Return part of a report -> the missing package that it needs."""
    return {part: package for part, package in PARTS.items() if find_spec(package) is None}


def write_report(results: Results, folder: Path, begun: float | None = None) -> tuple[Results, dict[str, str]]:
    """Write figures/, results.json and index.html, without the missing parts; return (results, part -> path).

    With `begun`, a time of `time.perf_counter`, the results' seconds run from then until the figures are drawn.
    """
    missing, drawn, written = missing_parts(), {}, {"numbers": str(folder / "results.json")}
    if "figures" not in missing:
        from considerate.study.figures import draw_all

        drawn = draw_all(results, folder / "figures")
        written["figures"] = str(folder / "figures")
    if begun is not None:
        results = replace(results, seconds=time.perf_counter() - begun)
    with atomic_write(folder / "results.json") as file:
        file.write(results_to_json(results).encode())
    if "page" not in missing:
        write_page(results, drawn, folder / "index.html")
        written["page"] = str(folder / "index.html")
    return results, written


# --- The page ---


def write_page(results: Results, figures: Mapping[str, Path], path: Path) -> None:
    """Write the page to `path`, next to results.json; `figures` comes from `draw_all`."""
    with atomic_write(path) as file:
        file.write(make_page(results, figures, path.parent).encode("utf-8"))


def make_page(results: Results, figures: Mapping[str, Path], folder: Path) -> str:
    """Render the page, with links relative to `folder`; raise UsageError without Jinja2."""
    try:
        from jinja2 import Environment, FunctionLoader, StrictUndefined
        from markupsafe import Markup
    except ImportError as error:
        raise UsageError("the page needs Jinja2; install it: pip install 'considerate[study]'.") from error
    environment = Environment(
        loader=FunctionLoader(lambda name: files(__package__).joinpath("templates", name).read_text("utf-8")),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.tests["finite"] = math.isfinite
    environment.tests["recalibrated"] = re.compile("recalibrated").search
    filters: dict[str, Callable[..., Any]] = {
        "number": captions.number,
        "signed": captions.signed,
        "percent": captions.percent,
        "listed": captions.listed,
        "plain_name": plain_name,
        "last_value": lambda values: values[-1] if values else math.nan,
        "flatten_keys": lambda mappings: list(dict.fromkeys(key for mapping in mappings for key in mapping)),
        "tau_name": lambda kind: f"E[tau {kind.replace('_', ' ')}]",
    }
    environment.filters |= filters
    page = environment.get_template("page.html").render(
        results=results,
        data=results.data,
        figures={name: _figure(path, folder) for name, path in figures.items()},
        captions=captions.make_captions(results),
        knob=knob_change(results),
        standings=captions.standings(results),
        standing=captions.standing,
        gaps=largest_gaps(results),
        error_shares=error_shares(results),
        large_strata=lambda side: large_strata(results, side),
        extremes=captions.extremes,
        worst_and_best_bin=captions.worst_and_best_bin,
        board=board(results),
        board_metrics=BOARD,
        metric_names=METRICS,
        explained=EXPLAINED,
        took=took(results),
        dark=DARK,
        degree_bins=degree_bins,
        degree_range=degree_range,
        inline_svg=lambda text, name, label: Markup(inline_svg(text, name, label)),
        paper_taus=PAPER_TAUS,
        nan=math.nan,
        zip=zip,
    )
    return page.lstrip() + "\n"


def _figure(svg: Path, folder: Path) -> dict[str, Any]:
    """Read an SVG file and its wide version, and make links to them and to the PDF."""
    wide = svg.with_name(f"{svg.stem}-wide.svg")
    kinds = {"SVG": svg, "wide SVG": wide, "PDF": svg.with_suffix(".pdf")}
    links = {
        kind: quote(os.path.relpath(file, folder).replace(os.sep, "/")) for kind, file in kinds.items() if file.exists()
    }
    widths = {"column": svg, "page": wide}
    return {"svgs": {width: file.read_text("utf-8") for width, file in widths.items() if file.exists()}, "links": links}


def inline_svg(text: str, name: str, label: str) -> str:
    """Make an SVG file an element of the page: without prolog and metadata, with unique ids, with a size that the page
    sets and colours that a dark page can change."""
    text = re.sub(r"<!--.*?-->", "", text[text.index("<svg") :], flags=re.S)
    text = re.sub(r"<metadata>.*?</metadata>|<style[^>]*>.*?</style>", "", text, flags=re.S)
    head, rest = text.split(">", 1)
    box = re.search(r'viewBox="([^"]*)"', head)
    rest = re.sub(r'\bid="([^"]*)"', rf'id="{name}-\1"', rest)
    rest = re.sub(r'(?:xlink:)?href="#([^"]*)"', rf'href="#{name}-\1"', rest)
    rest = re.sub(r"url\(#([^)]*)\)", rf"url(#{name}-\1)", rest)
    rest = re.sub(r"\b(fill|stroke): #([0-9a-f]{6})", r"\1: var(--c\2, #\2)", rest)
    rest = re.sub(r"(\d\.\d{3})\d+", r"\1", rest)
    view = box.group(1) if box else "0 0 245 245"
    return f'<svg viewBox="{view}" role="img" aria-label="{escape(label, quote=True)}">{rest.strip()}'


def degree_bins(models: Sequence[Any]) -> list[SimpleNamespace]:
    """Merge the bins of degree of several models; each has its index in every model's lists, or None."""
    places = [{bin: at for at, bin in enumerate(zip(model.low, model.high))} for model in models]
    bins = []
    for low, high in sorted({bin for place in places for bin in place}):
        cells = [(model, place.get((low, high))) for model, place in zip(models, places)]
        count = next((model.count[at] for model, at in cells if at is not None and model.count[at]), 0)
        bins.append(SimpleNamespace(low=low, high=high, count=count, cells=cells))
    return bins


def large_strata(results: Results, side: str) -> list[Bin]:
    """Strata of our scorer with enough likes for a sentence, by ascending degree."""
    rank = captions.our_ranks(results, side)
    if rank is None:
        return []
    return [
        Bin(degree_range(low, high), mean, place)
        for place, (low, high, mean, count) in enumerate(zip(rank.low, rank.high, rank.mean, rank.count))
        if count >= LARGE and math.isfinite(mean)
    ]


def board(results: Results) -> list[Any]:
    """Ours and its peers, best mean rank first."""
    rows = [*([results.ours] if results.ours else []), *results.peers]
    return sorted(rows, key=lambda row: -row.metrics.get("S_rank", -math.inf))


def largest_gaps(results: Results) -> tuple[SimpleNamespace, SimpleNamespace] | None:
    """Find the best and the worst stratum of ours minus a peer by the item's degree, among those with enough likes."""
    ours = results.ours.name if results.ours else None
    gaps = [
        SimpleNamespace(value=value, peer=plain_name(row.peer), degrees=degree_range(low, high))
        for row in results.differences
        if row.ours == ours
        for low, high, value, count in zip(row.low, row.high, row.difference, row.count)
        if count >= LARGE and math.isfinite(value)
    ]
    return (max(gaps, key=lambda gap: gap.value), min(gaps, key=lambda gap: gap.value)) if gaps else None


def error_shares(results: Results) -> list[SimpleNamespace]:
    """Share of held-out likes with p(like) < 1/2 by model, for users with ten or more likes and with one."""
    shares = []
    for error in results.errors:
        value, count = np.array(error.error), np.where(np.isfinite(error.error), error.count, 0)
        many, single = np.array(error.low) >= 10, (np.array(error.high) == 1) & (count > 0)
        if count[many].sum() > 0:
            mean = np.average(np.nan_to_num(value[many]), weights=count[many])
            first = value[single][0] if single.any() else math.nan
            shares.append(SimpleNamespace(name=error.name, ten_or_more=mean, single=first))
    return shares


def knob_change(results: Results) -> SimpleNamespace | None:
    """Values of each curve at (the lowest popularity weight, the chosen weight)."""
    knob = results.knobs[0] if results.knobs else None
    if knob is None or not knob.knob:
        return None
    ends = (min(knob.knob), knob.chosen)
    curves = ("mean_rank", "tail_rank", "coverage", "popularity")
    changes = {name: [float(np.interp(end, knob.knob, getattr(knob, name))) for end in ends] for name in curves}
    return SimpleNamespace(start=ends[0], chosen=knob.chosen, **changes)
