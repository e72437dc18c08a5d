"""Progress bars on the terminal, for the steps of a fit and for the stages of reading data in pieces."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from considerate.fitting.stopping import FitStep


def progress(
    steps: Iterator[FitStep], most: int, console: Any = None, later: bool = False, opening: int = 0
) -> Iterator[FitStep]:
    """Show a bar over steps and pass them on. The bar has sweep, bound, edges per second, time left and, below, the
    workers' times or E[tau]. `later` shows it after the first sweep, as other bars come before. `opening` is the number
    of sweeps in closed form."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.text import Text

    class Noted(Progress):
        note = ""

        def get_renderables(self) -> Iterator[Any]:
            yield from super().get_renderables()
            if self.note:
                yield Text(f"  {self.note}", "dim", no_wrap=True, overflow="ellipsis")

    columns = (
        TextColumn("{task.description} {task.completed:.0f}/{task.total:.0f}"),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[numbers]}", markup=False),
        TimeRemainingColumn(),
    )
    bar = Noted(*columns, console=console)
    task = bar.add_task("opening" if opening else "sweep", total=most, numbers="")
    try:
        if not later:
            bar.start()
        for step in steps:
            numbers, bar.note = summary(step)
            kind = "opening" if step.sweep < opening else "sweep"  # the sweep that runs now
            bar.update(task, completed=step.sweep, numbers=numbers, description=kind)
            bar.start()
            yield step
            if step.converged:
                bar.update(task, total=step.sweep)
    finally:
        bar.stop()


def summary(step: FitStep) -> tuple[str, str]:
    """Two lines with the numbers of a step."""
    taus = " ".join(
        f"{name.replace('_', ' ')} {value:.3g}" for name, value in step.state.posterior.precisions.means().items()
    )
    speed = step.edges / max(step.seconds, 1e-9) / 1e6
    return f"bound {step.bound.total:,.0f}  {speed:.1f} M edges/s", step.note or f"E[tau] {taus}"


@contextmanager
def reading_progress(console: Any = None) -> Iterator[Callable[[str, int, int], None]]:
    """Show a bar for each stage of a reader until the stage ends; yields the callback (stage, done, total)."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    bar: Progress | None = None

    def show(stage: str, done: int, total: int) -> None:
        nonlocal bar
        if bar is None and done < total:
            columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn())
            bar = Progress(*columns, console=console, transient=True)
            bar.add_task(stage, total=total)
            bar.start()
        if bar is not None:
            bar.update(bar.task_ids[0], description=stage, completed=done, total=total)
            if done >= total:
                bar.stop()
                bar = None

    try:
        yield show
    finally:
        if bar is not None:
            bar.stop()
