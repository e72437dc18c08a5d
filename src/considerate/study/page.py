"""One self-contained HTML page: the answers in words, the figures, sortable tables, and where the numbers are."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from html import escape
from pathlib import Path
from urllib.parse import quote

from considerate.storage.files import atomic_write
from considerate.study import page_tables as tables
from considerate.study.answers import Answer, answers
from considerate.study.captions import SECTIONS, Section
from considerate.study.page_assets import SCRIPT, STYLE
from considerate.study.results import Data, Results

_TABLES: dict[str, Callable[[Results], str]] = {
    "differences": tables.comparison_tables,
    "differences-by-degree": tables.difference_tables,
    "mean-ranks": tables.rank_tables,
    "percentiles": tables.median_tables,
    "errors": tables.error_tables,
    "reliability": tables.reliability_tables,
    "knob": tables.knob_tables,
    "times": tables.time_tables,
    "traces": tables.trace_tables,
    "degrees": tables.law_tables,
}
_OPEN = {"differences"}  # its tables are shown at once, the others on demand


def write_page(results: Results, figures: Mapping[str, Path], path: Path) -> None:
    """Write the page to `path`; `figures` is what `draw_all` gave, and results.json is expected beside the page."""
    with atomic_write(path) as file:
        file.write(make_page(results, figures, path.parent).encode("utf-8"))


def make_page(results: Results, figures: Mapping[str, Path], folder: Path) -> str:
    """The page as text; links are relative to `folder`."""
    title = escape(results.data.name)
    sections = [(section, _section(section, results, figures, folder)) for section in SECTIONS]
    shown = [(section.name, section.title, text) for section, text in sections if text]
    for name, heading, body in (
        ("statements", "The paper's statements", tables.statement_tables(results)),
        ("data", "Data, settings and versions", _facts(results)),
    ):
        if body:
            shown.append((name, heading, _plain_section(name, heading, body)))
    links = "".join(f'<li><a href="#{name}">{escape(heading)}</a></li>' for name, heading, _ in shown)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>{title}: a study</title>
<style>{STYLE}</style>
</head>
<body>
<header>
<h1>{title}</h1>
<p class="soft">{escape(_measure(results.data))}</p>
<div class="answers">{"".join(map(_answer, answers(results)))}</div>
<nav aria-label="sections"><ul>{links}</ul></nav>
</header>
<main>
{"".join(text for _, _, text in shown)}</main>
<footer>
<p>All numbers: <a href="results.json">results.json</a>. Intervals are 95 %, by bootstrap over users.</p>
</footer>
<script>{SCRIPT}</script>
</body>
</html>
"""


def _measure(data: Data) -> str:
    rule = f" (a like: {data.rule})" if data.rule else ""
    return (
        f"{data.likes:,} likes of {data.items:,} items by {data.users:,} users{rule}. The split: {data.split}; "
        f"{data.held_out:,} held-out likes in {'one split' if data.splits == 1 else f'each of {data.splits} splits'}."
    )


def _answer(answer: Answer) -> str:
    short = f'<p class="short">{escape(answer.short)}</p>' if answer.short else ""
    sentences = "".join(f"<li>{escape(sentence)}</li>" for sentence in answer.sentences)
    return f'<div class="answer"><h3>{escape(answer.question)}</h3>{short}<ul>{sentences}</ul></div>\n'


def _section(section: Section, results: Results, figures: Mapping[str, Path], folder: Path) -> str:
    """The figure beside its words, and its numbers below; nothing where there is neither."""
    numbers = _TABLES[section.name](results) if section.name in _TABLES else ""
    if not numbers and section.name not in figures:
        return ""
    paper = f" This is {section.paper} of the paper." if section.paper else ""
    text = f"<p>{escape(section.shows + paper)}</p><p><strong>How to read it.</strong> {escape(section.read)}</p>"
    if section.name in figures:
        text = _figure(section, figures[section.name], folder, text)
    if numbers and section.name not in _OPEN:
        numbers = f"<details><summary>The numbers</summary>{numbers}</details>"
    return _plain_section(section.name, section.title, text + numbers)


def _plain_section(name: str, title: str, body: str) -> str:
    heading = f'<h2 id="{name}-title">{escape(title)}</h2>'
    return f'<section id="{name}" aria-labelledby="{name}-title">{heading}\n{body}</section>\n'


def _figure(section: Section, svg: Path, folder: Path, caption: str) -> str:
    links = " &middot; ".join(
        f'<a href="{escape(_link(file, folder), quote=True)}">{kind}</a>'
        for kind, file in (("SVG", svg), ("PDF", svg.with_suffix(".pdf")))
        if file.exists()
    )
    drawing = inline_svg(svg.read_text(encoding="utf-8"), section.name, section.title)
    caption = f'<figcaption>{caption}<p class="soft">The figure as {links}</p></figcaption>'
    return f'<figure class="beside"><div class="plot">{drawing}</div>{caption}</figure>\n'


def _link(file: Path, folder: Path) -> str:
    return quote(os.path.relpath(file, folder).replace(os.sep, "/"))


def inline_svg(text: str, name: str, label: str) -> str:
    """An SVG file as an element of the page: no prolog, no metadata, ids of its own, and a size that the page sets."""
    text = re.sub(r"<!--.*?-->", "", text[text.index("<svg") :], flags=re.S)
    text = re.sub(r"<metadata>.*?</metadata>|<style[^>]*>.*?</style>", "", text, flags=re.S)
    head, rest = text.split(">", 1)
    box = re.search(r'viewBox="([^"]*)"', head)
    rest = re.sub(r'\bid="([^"]*)"', rf'id="{name}-\1"', rest)
    rest = re.sub(r'(?:xlink:)?href="#([^"]*)"', rf'href="#{name}-\1"', rest)
    rest = re.sub(r"url\(#([^)]*)\)", rf"url(#{name}-\1)", rest)
    view = box.group(1) if box else "0 0 245 245"
    return f'<svg viewBox="{view}" role="img" aria-label="{escape(label, quote=True)}">{rest.strip()}'


def _facts(results: Results) -> str:
    data = results.data
    facts = {
        "source": data.source,
        "a like is": data.rule or "every row",
        "users, items, likes": f"{data.users:,}, {data.items:,}, {data.likes:,}",
        "duplicates": f"{data.duplicates:,} rows, counted once",
        "split": f"{data.split}; {data.splits} times, {data.held_out:,} held-out likes each",
        "considered, not liked": f"{data.judged:,} pairs" if data.judged else "not known in these data",
        "the study took": _duration(results.seconds),
    }
    listed = "".join(f"<dt>{escape(name)}</dt><dd>{escape(fact)}</dd>" for name, fact in facts.items())
    versions = [[tables.words(name), tables.words(version)] for name, version in results.versions.items()]
    shown = tables.table("Versions", ["package", "version"], versions) if versions else ""
    notes = "".join(f"<li>{escape(note)}</li>" for note in data.notes)
    said = f"<h3>Notes</h3><ul>{notes}</ul>" if notes else ""
    return f"<dl>{listed}</dl>{said}{shown}"


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.1f} minutes"
