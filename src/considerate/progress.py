"""A progress bar over the steps of a fit: sweep, bound, E[tau], edges a second, time left."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from considerate.training import FitStep


def progress(steps: Iterator[FitStep], most: int, console: Any = None) -> Iterator[FitStep]:
    """The same steps, with a bar on the terminal."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("sweep {task.completed:.0f}/{task.total:.0f}"),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[numbers]}", markup=False),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("fit", total=most, numbers="")
        for step in steps:
            bar.update(task, completed=step.sweep, numbers=summary(step))
            yield step
            if step.converged:
                bar.update(task, total=step.sweep)


def summary(step: FitStep) -> str:
    """One line of numbers of a step."""
    taus = " ".join(
        f"{name.replace('_', ' ')} {value:.3g}" for name, value in step.state.posterior.precisions.means().items()
    )
    speed = step.edges / max(step.seconds, 1e-9) / 1e6
    return f"bound {step.bound.total:,.0f}  E[tau] {taus}  {speed:.1f} M edges/s"
