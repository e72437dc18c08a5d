"""Data of a study: likes, and pairs that were considered and not liked, if they are known.

Also the degrees of the graph G and of a drawn H with their laws (fig. 1), and positives to negatives (fig. 3).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from considerate.data import Interactions, ReaderOptions, read_interactions, read_judged, read_likes
from considerate.data.graph import Graph
from considerate.data.inputs import scheme_of
from considerate.data.side_information import read_side
from considerate.data.vocabulary import Titles, Vocabulary
from considerate.errors import UsageError
from considerate.evaluation.split import HeldOut, edge_keys, given_likes, pair_keys, rows_in
from considerate.fitting.session import make_graph, make_popularity
from considerate.inference.hidden import positives_to_negatives
from considerate.inference.hidden.drawers import drawer_of
from considerate.inference.hidden.saturation import Saturation
from considerate.inference.plan import FitPlan
from considerate.kernels.threads import Backend
from considerate.simulation.degrees import degree_histogram, fit_power_law, fit_power_law_cutoff
from considerate.study.cache import fingerprint
from considerate.study.results import Balance, Degrees

Rows = NDArray[np.int64]
POINTS = 60  # of a drawn law
BINS_PER_DECADE = 5
RATES = {"r = 1": 1.0, "r = 1/2": 0.5}


@dataclass(frozen=True)
class Judged:
    """Pairs that people judged. Without liked pairs, the likes held out by a split are the other class."""

    users: Rows  # [pairs] considered and not liked
    items: Rows  # [pairs]
    liked_users: Rows  # [likes] considered and liked, from another source
    liked_items: Rows  # [likes]

    @property
    def apart(self) -> bool:
        """True if both classes come from another source, which no split touches."""
        return len(self.liked_users) > 0


@dataclass(frozen=True)
class Material:
    """The data of a study, as row numbers."""

    name: str
    source: str
    rule: str | None
    graph: Graph
    notes: tuple[str, ...]
    judged: Judged | None = None
    test: HeldOut | None = None  # a given split
    user_ids: Vocabulary | None = None
    item_ids: Vocabulary | None = None
    titles: Titles | None = None
    considered: Any = None  # considered pairs for our own fits, a scipy matrix

    def item(self, row: int) -> str:
        """Title of an item, or its id."""
        title = self.titles.of(row) if self.titles is not None else None
        return title or str(row if self.item_ids is None else self.item_ids.id_of(row))

    def user(self, row: int) -> str:
        """Id of a user."""
        return str(row if self.user_ids is None else self.user_ids.id_of(row))

    def fingerprint(self) -> str:
        """Hash of everything that the results depend on."""
        likes, judged, test = self.graph.by_user, self.judged, self.test
        shape = np.array([self.graph.item_count, judged is None, test is None])
        pairs = [] if judged is None else [judged.users, judged.items, judged.liked_users, judged.liked_items]
        pairs += [] if test is None else [test.users, test.items]
        pairs += [] if self.considered is None else [self.considered.indptr, self.considered.indices]
        return fingerprint(likes.starts, likes.indices, shape, *pairs)


def read_material(
    data: Any,
    reader: ReaderOptions,
    *,
    judged: Any = None,
    judged_where: str | None = None,
    test: Any = None,
    title: str | None = None,
    considered: Any = None,
) -> Material:
    """Read the likes of a source. With a rule, the rows that fail it were considered and not liked.

    considered      considered pairs for our own fits, in place of rows of the source; p(like) is not checked with them
    judged          another source of judged pairs: rows that pass the rule were liked, the others not
    judged_where    its rule, if it is another one
    test            test likes, in place of a random split
    """
    rule = reader.where
    other = replace(reader.untitled(), query=None)  # options for the other sources
    others: Interactions | None = None
    truth: tuple[Interactions, Interactions | None] | None = None
    if judged is not None:
        its_rule = judged_where or rule
        if its_rule is None:
            raise UsageError("--judged needs a rule for its likes; give --judged-where or --where.")
        truth = read_judged(judged, replace(other, where=its_rule))
    elif judged_where is not None:
        raise UsageError("--judged-where goes with --judged, a file of judged pairs.")
    if rule is None or truth is not None:
        likes = read_likes(data, reader)
    else:
        likes, others = read_judged(data, reader)
    tested = None if test is None else read_likes(test, other)
    if title is None and isinstance(data, str):
        path = Path(urlsplit(data).path if scheme_of(data) else data)  # without passwords and options of an address
        title = path.stem if path.stem not in ("ratings", "train", "likes", "data") else None
        title = title or path.resolve().parent.name or path.stem
    given = read_side(data, reader, considered).considered
    pairs = None if given is None else given.interactions()
    return make_material(likes, rule=rule, not_liked=others, judged=truth, test=tested, title=title, considered=pairs)


def make_material(
    likes: Any,
    *,
    rule: str | None = None,
    not_liked: Interactions | None = None,
    judged: tuple[Interactions, Interactions | None] | None = None,
    test: Interactions | None = None,
    title: str | None = None,
    considered: Interactions | None = None,
) -> Material:
    """Make material from likes. `not_liked` and `judged` (likes, others) are judged pairs to check p(like) with, and
    `considered` are pairs for our own fits."""
    likes = read_interactions(likes)
    notes = [*likes.notes]
    graph = make_graph(likes)
    known = edge_keys(graph)
    truth: Judged | None = None
    empty = np.empty(0, np.int64)
    if judged is not None:
        liked = _pairs(likes, judged[0], known, "the judged likes", notes)
        others = (empty, empty) if judged[1] is None else _pairs(likes, judged[1], known, "the judged others", notes)
        keep = ~np.isin(pair_keys(*others, graph.item_count), pair_keys(*liked, graph.item_count))
        truth = Judged(others[0][keep], others[1][keep], *liked)
        if not len(truth.users) or not len(truth.liked_users):
            notes.append("the judged pairs are all of one kind: p(like) cannot be checked against them")
            truth = None
    given = None
    if considered is not None:
        from scipy.sparse import csr_matrix

        rows = _pairs(likes, considered, known, "the considered pairs", notes)
        given = csr_matrix((np.ones(len(rows[0]), np.float32), rows), shape=(graph.user_count, graph.item_count))
        known = np.append(known, pair_keys(*rows, graph.item_count))
    if judged is None and not_liked is not None:
        users, items = _pairs(likes, not_liked, known, "pairs that fail the rule", notes)
        truth = Judged(users, items, empty, empty) if len(users) else None
    held = None if test is None else given_likes(likes, test)
    if held is not None and held.left_out:
        notes.append(f"{held.left_out:,} likes of the test have users or items without training, and are left out")
    names = (likes.user_ids, likes.item_ids, likes.titles)
    return Material(title or likes.source, likes.source, rule, graph, tuple(notes), truth, held, *names, given)


def _pairs(
    likes: Interactions, others: Interactions, liked: NDArray[np.int64], what: str, notes: list[str]
) -> tuple[Rows, Rows]:
    """Convert pairs to rows of the likes, each pair once and without likes; add notes on pairs that are left out."""
    users, items = rows_in(likes, others)
    inside = (users >= 0) & (items >= 0)
    keys = np.unique(pair_keys(users[inside], items[inside], len(likes.item_ids)))
    both = np.isin(keys, liked, assume_unique=True)
    if not inside.all():
        notes.append(f"{what}: {int((~inside).sum()):,} have users or items without a like, and are left out")
    if both.any():
        notes.append(f"{what}: {int(both.sum()):,} are likes in training, and are left out")
    keys = keys[~both]
    return keys // len(likes.item_ids), keys % len(likes.item_ids)


# --- Laws ---


def drawn_hidden(graph: Graph, plan: FitPlan, backend: Backend) -> Any:
    """Draw the unliked edges of one H, by user."""
    popularity = make_popularity(graph, plan, backend)
    sampled = drawer_of(plan.hidden)(graph.by_user, graph.user_blocks, popularity.weights, plan.negatives, plan.seed)
    return sampled.draw(1, backend.map)


def study_degrees(graph: Graph, seed: int, backend: Backend) -> list[Degrees]:
    """Fit laws to both sides of G, and of an H drawn as in the paper (a fair coin, r = 1)."""
    unliked = drawn_hidden(graph, FitPlan.of_paper(seed=seed), backend)
    return [
        degree_law("users", "G", graph.by_user.degrees),
        degree_law("items", "G", graph.by_item.degrees),
        degree_law("users", "H drawn", graph.by_user.degrees + unliked.degrees),
        degree_law("items", "H drawn", np.add(*positives_to_negatives(graph, unliked))),
    ]


def degree_law(side: str, graph: str, degrees: NDArray[Any]) -> Degrees:
    """Fit a law to degrees, with a cut-off for users and without for items, as in the paper's figure 1."""
    histogram = degree_histogram(degrees, bins_per_decade=BINS_PER_DECADE)
    fit = fit_power_law_cutoff(degrees) if side == "users" else fit_power_law(degrees)
    points = np.unique(np.round(np.geomspace(fit.law.minimum, int(degrees.max()), POINTS)).astype(np.int64))
    filled = histogram.counts > 0
    return Degrees(
        side,
        graph,
        histogram.centre[filled].tolist(),
        (fit.vertices * histogram.density[filled]).tolist(),
        fit.law.describe(),
        points.astype(float).tolist(),
        (fit.vertices * np.exp(fit.law.log_probability(points))).tolist(),
    )


def study_balance(graph: Graph, seed: int, backend: Backend) -> Iterator[Balance]:
    """Compute positives to negatives for two rates with and without head correction, closed form, and half-edges."""
    for name, rate in RATES.items():
        for corrected in (False, True):
            unliked = drawn_hidden(graph, FitPlan.of_paper(rate=rate, head_correction=corrected, seed=seed), backend)
            liked, others = positives_to_negatives(graph, unliked)
            yield _balance(f"{name}, head corrected" if corrected else name, liked, others)
    degree, plan = graph.by_item.degrees, FitPlan.of_paper(seed=seed)
    inclusion = Saturation(make_popularity(graph, plan, backend).weights).inclusion
    masses = inclusion.masses(graph.by_user, graph.user_blocks, plan.negatives, backend.map)
    yield _balance("r = 1, closed form", degree, inclusion.expected_per_item(masses))
    unliked = drawn_hidden(graph, replace(plan, hidden="half-edges"), backend)
    yield _balance("r = 1, half-edges", *positives_to_negatives(graph, unliked))


def _balance(name: str, liked: NDArray[Any], others: NDArray[Any]) -> Balance:
    histogram = degree_histogram(liked, bins_per_decade=BINS_PER_DECADE)
    some = liked > 0
    bins, filled = np.searchsorted(histogram.last, liked[some]), histogram.counts > 0
    sums, drawn = (np.bincount(bins, side[some], len(filled))[filled] for side in (liked, others))
    ratio = np.divide(sums, drawn, out=np.full(len(sums), np.nan), where=drawn > 0)
    centre = histogram.centre[filled].tolist()
    return Balance(name, liked[some].tolist(), others[some].astype(np.float64).tolist(), centre, ratio.tolist())
