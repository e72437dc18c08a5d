"""Result of `considerate.evaluate`: figures with intervals, as fields, as a table, and as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from textwrap import wrap
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import Run, run_serially
from considerate.data.result import TableResult
from considerate.evaluation.bootstrap import RESAMPLES, Interval, intervals
from considerate.evaluation.metrics import coverage, gini, list_metrics, user_metrics
from considerate.evaluation.protocol import Protocol
from considerate.evaluation.ranks import ranks_and_lists
from considerate.evaluation.scorer import Scorer

if TYPE_CHECKING:
    import pyarrow

WIDTH, NAME, CELL, WIDE = 80, 18, 17, 20  # characters of the printed table
POPULARITY, FOLDED, BY_POPULARITY = "popularity", "folded in", "by popularity"
Values = dict[str, NDArray[np.float64]]


class Figure(NamedTuple):
    """A mean over users and its 95 % interval by bootstrap over users."""

    mean: float
    low: float
    high: float

    def text(self) -> str:
        """The mean and half the width of the interval."""
        digits = 4 if abs(self.mean) < 10 else 1
        return f"{self.mean:.{digits}f} ±{(self.high - self.low) / 2:.{digits}f}"

    @property
    def clear(self) -> bool:
        """True if 0 is outside the interval."""
        return self.low > 0.0 or self.high < 0.0


@dataclass(frozen=True)
class ModelResult:
    """Figures of one recommender."""

    name: str
    metrics: dict[str, Figure]  # by name: S_rank, MRR, Recall@20, NDCG@20, MAP@20, hit rate@20, popularity@20, ...
    difference: dict[str, Figure]  # metrics minus those of the first recommender, paired by user; empty for the first
    coverage: float  # share of the catalogue that is in a list
    gini: float  # Gini coefficient of how often each item is in a list: 0 if all equally often
    fit_seconds: float | None  # None if it was fitted before
    new_users: int  # tested users who are not in its training
    new_users_scored: str  # "folded in" from their earlier likes, or "by popularity" if it cannot do that
    per_user: Values = field(repr=False)  # [tested users] values that the figures are means of, in the order of `users`
    model: Any = field(repr=False)  # the given model, or the one fitted to the training part


@dataclass(frozen=True)
class Evaluation(TableResult):
    """Results of recommenders on the same held-out likes; `evaluation["EASE"]` is the result of one."""

    models: tuple[ModelResult, ...]  # in the given order, then popularity
    source: str
    split: str  # the held-out likes in words
    users: list[int | str]  # ids of the tested users
    held_out: int  # number of likes
    items: int  # number of items in the catalogue
    left_out: dict[str, int]  # likes that could not be tested, by the reason
    k: tuple[int, ...]
    notes: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> ModelResult:
        for result in self.models:
            if result.name == name:
                return result
        raise KeyError(f"no model is called {name!r}; there are {', '.join(result.name for result in self.models)}")

    def __iter__(self) -> Iterator[ModelResult]:
        return iter(self.models)

    def to_arrow(self) -> pyarrow.Table:
        """Table with a row for each model and metric.

        Columns: model, metric, mean, low, high; difference, difference_low, difference_high (from the first model,
        null for itself); users.
        """
        import pyarrow as pa

        rows = [
            {"model": result.name, "metric": name, **figure._asdict()}
            | dict(zip(("difference", "difference_low", "difference_high"), result.difference.get(name, (None,) * 3)))
            | {"users": len(self.users)}
            for result in self.models
            for name, figure in result.metrics.items()
        ]
        texts, numbers = ("model", "metric"), ("mean", "low", "high")
        schema = [*((name, pa.string()) for name in texts), *((name, pa.float64()) for name in numbers)]
        schema += [(name, pa.float64()) for name in ("difference", "difference_low", "difference_high")]
        return pa.Table.from_pylist(rows, pa.schema([*schema, ("users", pa.int64())]))

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, without the values of single users."""
        plain = {name: value for name, value in vars(self).items() if name not in ("models", "users")}
        models = []
        for result in self.models:
            values = {name: value for name, value in vars(result).items() if name not in ("per_user", "model")}
            for part in ("metrics", "difference"):
                values[part] = {name: figure._asdict() for name, figure in values[part].items()}
            models.append(values)
        return plain | {"k": list(self.k), "notes": list(self.notes), "users": len(self.users), "models": models}

    def __str__(self) -> str:
        head = [
            wrapped
            for line in self._head()
            for wrapped in wrap(line, WIDTH, subsequent_indent="  ", break_on_hyphens=False)
        ]
        return "\n".join([*head, "", *self._table()])

    __repr__ = __str__

    def _head(self) -> Iterator[str]:
        yield f"{self.source}: held out: {self.split}"
        yield f"{self.held_out:,} likes of {len(self.users):,} users, ranked among {self.items:,} items"
        groups: dict[tuple[int, str], list[str]] = {}
        for result in self.models:
            if result.new_users and result.name != POPULARITY:
                groups.setdefault((result.new_users, result.new_users_scored), []).append(result.name)
        for (count, how), names in groups.items():
            share = count / len(self.users)
            yield f"new to {', '.join(names)}: {count:,} users ({share:.0%}), {how}" + (
                " from their earlier likes" if how == FOLDED else ", as it cannot fold them in"
            )
        for reason, count in self.left_out.items():
            if count:
                yield f"left out: {count:,} {'likes ' if reason != 'duplicates' else ''}{reason}"
        yield from self.notes

    def _table(self) -> Iterator[str]:
        k = max(self.k)
        shown = (f"NDCG@{k}", f"Recall@{k}", "S_rank")
        yield f"{'':{NAME}}" + "".join(f"{name:>{CELL}}" for name in shown) + f"{'coverage':>10}"
        for result in self.models:
            cells = "".join(f"{result.metrics[name].text():>{CELL}}" for name in shown)
            yield f"{_short(result.name):{NAME}}{cells}{result.coverage:>10.1%}"
        if len(self.models) > 1:
            yield ""
            yield f"minus {_short(self.models[0].name)}, paired by user: 95 % intervals (*: 0 is outside)"
            for result in self.models[1:]:
                figures = [result.difference[name] for name in shown]
                gaps = (f"{figure.low:+.4f} to {figure.high:+.4f}{' *'[figure.clear]}" for figure in figures)
                yield f"{_short(result.name):{NAME}}" + "".join(f"{cell:>{WIDE}}" for cell in gaps)


def _short(name: str) -> str:
    return name if len(name) < NAME else name[: NAME - 2] + "…"


@dataclass(frozen=True)
class Contestant:
    """A fitted recommender whose scorer has the rows of a protocol."""

    name: str
    scorer: Scorer
    model: Any
    fit_seconds: float | None = None
    new_users: int = 0  # tested users who are not in its training
    new_users_scored: str = FOLDED


@dataclass(frozen=True)
class Bootstrap:
    """Settings of the bootstrap that makes intervals."""

    seed: int = 0
    resamples: int = RESAMPLES

    def figures(self, values: Mapping[str, NDArray[np.float64]]) -> dict[str, Figure]:
        """The mean and the interval of each metric."""
        bounds: dict[str, Interval] = intervals(values, self.seed, resamples=self.resamples)
        return {name: Figure(float(own.mean()), *bounds[name]) for name, own in values.items()}


BOOTSTRAP = Bootstrap()


def measure(
    contestant: Contestant,
    protocol: Protocol,
    item_degree: NDArray[np.int64],
    k: tuple[int, ...],
    bootstrap: Bootstrap,
    run: Run[Any, Any] = run_serially,
    first: ModelResult | None = None,
) -> ModelResult:
    """Measure one recommender and compare it with the `first`; `item_degree` has degrees of training."""
    held, item_count = protocol.held, len(protocol.item_ids)
    ranks, lists = ranks_and_lists(contestant.scorer, held, max(k), run)
    assert lists is not None
    of_lists = list_metrics(lists, item_degree, held.training_users)
    values = user_metrics(ranks, k) | {name: np.nan_to_num(own) for name, own in of_lists.items()}
    differences = {} if first is None else {name: own - first.per_user[name] for name, own in values.items()}
    return ModelResult(
        contestant.name,
        bootstrap.figures(values),
        bootstrap.figures(differences),
        coverage(lists, item_count),
        gini(lists, item_count),
        contestant.fit_seconds,
        contestant.new_users,
        contestant.new_users_scored,
        values,
        contestant.model,
    )
