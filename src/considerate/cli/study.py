"""The command `considerate study`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from considerate.cli import screen
from considerate.cli.options import Data, OptionGroup, Output, StudyReader, StudySettings, expand_groups, option
from considerate.inference.plan import Parameters
from considerate.study.names import plain_name
from considerate.study.results import Results, duration, results_to_json, took

if TYPE_CHECKING:
    from considerate.study.cache import StudyStep


class StudyGroup(OptionGroup, panel="The study"):
    test: str | None = option("Test likes to rank; if not given, one like of each user is held out.", None)
    judged: str | None = option(
        "Pairs that people judged, liked or not, to check p(like) with. If not given, rows of DATA that fail the rule "
        "were considered and not liked.",
        None,
    )
    judged_where: str | None = option("The rule that judged pairs pass if they were liked; --where if not given.", None)
    splits: int = option("Number of splits, each with its own seed.", 5)
    no_peers: bool = option("Leave out BPR, ALS, EASE, the walk and GF-CF; popularity stays.", False)
    title: str | None = option("Name of the data in the report; from its path if not given.", None)
    considered: str | None = option(
        "Pairs that were considered and not liked, for our own fits; or use --considered-where on DATA. p(like) is not "
        "checked against these pairs.",
        None,
    )


class StudyOutput(Output):
    output: str = option("The report's folder.", ..., "--output", "-o")


@expand_groups
def study(data: Data, reader: StudyReader, settings: StudySettings, options: StudyGroup, output: StudyOutput) -> None:
    """Write a report on likes: how well items are ranked, for whom and in which part of the catalogue, whether p(like)
    is calibrated, what the knob does, and how the model compares with other recommenders.

    The report's folder keeps the results of each stage. After Ctrl-C, or with other options, a second run computes only
    what is missing.
    """
    from considerate.data.output import check_apart
    from considerate.study.experiment import Study, StudyOptions
    from considerate.study.material import read_material
    from considerate.study.page import CACHE, missing_parts, open_report, write_report

    defaults = vars(Parameters())
    changed = {name: value for name, value in vars(settings).items() if value != defaults[name]}
    seed, threads = int(changed.pop("seed", 0)), changed.pop("threads", None)
    studied = StudyOptions(changed, options.splits, seed, not options.no_peers, threads)
    quiet, begun = output.quiet, time.perf_counter()
    with open_report(output.output) as folder:
        sources = data, options.test, options.judged, options.considered, reader.titles
        check_apart(str(folder / "results.json"), *sources)
        with screen.library_messages(quiet):
            judged = {"judged": options.judged, "judged_where": options.judged_where, "test": options.test}
            known = options.considered
            material = read_material(data, reader, **judged, title=options.title, considered=known)
            work = Study(material, studied, folder=folder / CACHE)
            for part, package in missing_parts().items():
                advice = f"{package} is not installed (pip install considerate[study])"
                work.notes.append(f"the report has no {part}: {advice}")
            output.note(*work.notes)
            for _ in work.steps() if quiet else _progress(work.steps()):
                pass
        results, written = write_report(work.results, folder, begun)
    if output.json:
        screen.print_json_text(results_to_json(results))
    elif not quiet:
        _show(results, written)


def _progress(steps: Iterator[StudyStep]) -> Iterator[StudyStep]:
    """Yield the same steps, with a progress bar on a terminal, else a line on stderr for each group of stages."""
    console = screen.stderr()
    if not console.is_terminal:
        begun = time.perf_counter()
        for step in steps:
            if step.reused is None:
                screen.say(f"{step.done}/{step.total}", f"{step.stage} (after {duration(time.perf_counter() - begun)})")
            yield step
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    text = TextColumn("{task.description}", markup=False)
    columns = (BarColumn(bar_width=24), MofNCompleteColumn(), TimeElapsedColumn(), text)
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=None)
        reused = 0
        for step in steps:
            reused += step.reused is True
            description = step.stage + (f" ({reused} reused)" if reused else "")
            bar.update(task, completed=step.done, total=step.total, description=description)
            yield step


def _show(results: Results, written: dict[str, str]) -> None:
    facts = {
        "data": "{users:,} users, {items:,} items, {likes:,} likes",
        "split": "{split}; {splits} of them, {held_out:,} likes held out in each",
    }
    screen.show_facts(facts, vars(results.data), results.data.name)
    metrics = {">mean rank": "S_rank", ">tail": "S_rank tail", ">Recall@20": "Recall@20", ">NDCG@20": "NDCG@20"}
    columns = {"ranked by": "{name}"} | {name: f"{{{metric}}}" for name, metric in metrics.items()}
    rows = []
    for peer in results.comparisons:
        row = {name: f"{peer.metrics[name]:.4f}" if name in peer.metrics else "-" for name in metrics.values()}
        low, high = peer.difference_intervals.get("S_rank", (0.0, 0.0))
        ahead = f"{peer.difference['S_rank']:+.4f} ±{(high - low) / 2:.4f}" if "S_rank" in peer.difference else "-"
        rows.append(row | {"name": plain_name(peer.name), "ahead": ahead})
    screen.show_table(columns | {">ours ahead by": "{ahead}"}, rows)
    reliability = {
        f"p(like), {table.name}": f"calibration error {table.calibration_error:.3f}, AUC {table.auc:.3f}"
        for table in results.reliability
    }
    screen.show_facts(reliability | {"took": took(results)} | written)
