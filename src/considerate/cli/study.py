"""considerate study"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any

import typer

from considerate.cli import screen
from considerate.cli.options import OUTPUT_PANEL, Json, Quiet, check_inputs_kept, with_settings, with_untitled_reader
from considerate.data import ReaderOptions
from considerate.parameters import Parameters

if TYPE_CHECKING:
    from considerate.study.results import Results, ScorerResult
    from considerate.study.stages import Step

STUDY_PANEL = "The study"
SETTINGS = [one.name for one in fields(Parameters) if one.name != "popularity"]  # the study chooses the knob itself


@with_untitled_reader
@with_settings(SETTINGS)
def study(
    data: Annotated[
        str, typer.Argument(help="Parquet file or folder, CSV or other delimited text, or the address of a database.")
    ],
    reader: ReaderOptions,
    settings: dict[str, Any],
    output: Annotated[str, typer.Option("--output", "-o", help="The report's folder.", rich_help_panel=OUTPUT_PANEL)],
    test: Annotated[
        str | None,
        typer.Option(
            help="Likes to rank, if the split is given; else one like of each user is held out.",
            rich_help_panel=STUDY_PANEL,
        ),
    ] = None,
    judged: Annotated[
        str | None,
        typer.Option(
            help="Pairs whose truth is known, liked or not, to check p(like) with. If not given, rows of DATA that "
            "fail the rule were considered and not liked.",
            rich_help_panel=STUDY_PANEL,
        ),
    ] = None,
    judged_where: Annotated[
        str | None,
        typer.Option(help="Which of the judged pairs are likes; as --where if not given.", rich_help_panel=STUDY_PANEL),
    ] = None,
    splits: Annotated[
        int, typer.Option(help="How many splits, each with its own seed.", rich_help_panel=STUDY_PANEL)
    ] = 5,
    no_peers: Annotated[
        bool,
        typer.Option("--no-peers", help="Leave out BPR, ALS and EASE; popularity stays.", rich_help_panel=STUDY_PANEL),
    ] = False,
    title: Annotated[
        str | None,
        typer.Option(help="What to call the data; from its path if not given.", rich_help_panel=STUDY_PANEL),
    ] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """One report on likes: how well items are ranked, for whom and in which part of the catalogue, whether p(like) is
    honest, what the knob does, and how it compares with other recommenders.

    Stages are kept in the report's folder: after Ctrl-C, or with other options, a second run makes what is missing.
    """
    from considerate.study.experiment import Options, Study
    from considerate.study.material import read_material
    from considerate.study.report import CACHE, missing_parts, open_report, write_report
    from considerate.study.results import results_to_json

    defaults = {one.name: one.default for one in fields(Parameters)}
    changed = {name: value for name, value in settings.items() if value != defaults[name]}
    seed, threads = int(changed.pop("seed", 0)), changed.pop("threads", None)
    options = Options(changed, splits, seed, not no_peers, threads)
    with open_report(output) as folder:
        check_inputs_kept(str(folder / "results.json"), data, test, judged)
        with screen.told(quiet):
            material = read_material(data, reader, judged=judged, judged_where=judged_where, test=test, title=title)
            work = Study(material, options, folder=folder / CACHE)
            for part, package in missing_parts().items():
                work.notes.append(
                    f"the report has no {part}: {package} is not installed (pip install considerate[study])"
                )
            if not quiet:
                for note in work.notes:
                    screen.say("note", note)
            for _ in work.steps() if quiet else _progress(work.steps()):
                pass
        written = write_report(work.results, folder)
    if json:
        screen.print_json_text(results_to_json(work.results))
    elif not quiet:
        _show(work.results, written)


def _progress(steps: Iterator[Step]) -> Iterator[Step]:
    """The same steps, with a bar on the terminal."""
    console = screen.stderr()
    if not console.is_terminal:
        yield from steps
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(bar_width=24), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=None)
        reused = 0
        for step in steps:
            reused += step.reused is True
            kept = f" [dim]({reused} reused)[/]" if reused else ""
            bar.update(task, completed=step.done, total=step.total, description=step.stage.replace("[", r"\[") + kept)
            yield step


def _show(results: Results, written: dict[str, str]) -> None:
    console = screen.stdout()
    data = results.data
    facts = screen.facts(data.name)
    facts.add_row("data", f"{data.users:,} users, {data.items:,} items, {data.likes:,} likes")
    facts.add_row("split", f"{data.split}; {data.splits} of them, {data.held_out:,} likes held out in each")
    console.print(facts)
    right = ("S_rank", "tail", "Recall@20", "NDCG@20", "ours ahead by")
    shown = screen.table("ranked by", *right, right=right)
    for one in results.comparisons:
        names = ("S_rank", "S_rank tail", "Recall@20", "NDCG@20")
        shown.add_row(one.name, *(_number(one, name) for name in names), _difference(one))
    console.print(shown)
    ended = screen.facts()
    for table in results.reliability:
        ended.add_row(f"p(like), {table.name}", f"calibration error {table.calibration_error:.3f}, AUC {table.auc:.3f}")
    ended.add_row("took", f"{results.seconds:.0f} s")
    for what, where in written.items():
        ended.add_row(what, where)
    console.print(ended)


def _number(one: ScorerResult, metric: str) -> str:
    return f"{one.metrics[metric]:.4f}" if metric in one.metrics else "-"


def _difference(one: ScorerResult) -> str:
    if "S_rank" not in one.difference:
        return "-"
    low, high = one.difference_intervals["S_rank"]
    return f"{one.difference['S_rank']:+.4f} ±{(high - low) / 2:.4f}"
