"""Random graphs with given degree laws (section 2 of the paper), and data drawn from the model (eq. 5)."""

from __future__ import annotations

import logging
import math
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from considerate.data.output import write_columns
from considerate.errors import UsageError
from considerate.kernels import compiled  # type: ignore[attr-defined, unused-ignore]
from considerate.simulation.catalogue import GENRES, readable_titles
from considerate.simulation.degrees import PowerLaw, mean_constraint
from considerate.storage.container import TRUTH, write_tensors
from considerate.storage.files import check_writable

Ints = NDArray[np.int32]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

_WIDEST_GAP = 4.0  # most standard deviations between the expected sums of degrees
_ATTEMPTS = 50  # most draws of degrees until a graph can have them
_GENRE_SHARE = 0.75  # share of the variance of an item vector that its genre explains
_CHUNK = 1 << 20  # edges whose vectors are gathered at a time

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class GraphSize:
    """Size and degree laws of a graph to imitate."""

    users: int
    items: int
    edges: int
    user_law: PowerLaw
    item_law: PowerLaw


# Section 2: movies viewed on Xbox. The laws are the lines drawn over the data. The user law has a mean of 7.34, and
# the data has 7.1, so graphs drawn from the law have 45.5 instead of 44 million edges.
XBOX_SAMPLE = GraphSize(
    users=6_200_000,
    items=12_000,
    edges=44_000_000,
    user_law=PowerLaw(1.4, cutoff=70.0),
    item_law=PowerLaw(0.77),
)


@dataclass(frozen=True)
class RandomGraph:
    """Random graph: distinct edges, sorted by user, then item."""

    users: Ints  # [E]
    items: Ints  # [E]
    user_count: int
    item_count: int
    user_law: PowerLaw
    item_law: PowerLaw
    redraws: int = 0  # new degrees of one user and one item, until the sums were equal
    repairs: int = 0  # double edges removed by swaps
    rebuilt: bool = False  # too dense for swaps: built by Gale and Ryser's rule and mixed


def balanced_item_law(
    user_law: PowerLaw,
    item_law: PowerLaw,
    *,
    users: int,
    items: int,
    cut: Literal["exponential", "maximum"] = "exponential",
) -> PowerLaw:
    """Cut off the item law so that eq. 1 holds: N E[d_item] = M E[d_user].

    The exponent stays. "exponential" replaces the cut-off, "maximum" the largest degree. An integer maximum cannot make
    the means exactly equal, so a cut-off far beyond it accounts for the rest.
    """
    _check_sizes(users, items)
    if cut not in ("exponential", "maximum"):
        raise UsageError(f"cut is {cut!r}; choose 'exponential' or 'maximum'.")
    mu = user_law.bounded(items).mean()
    target = users * mu / items
    law = item_law.bounded(users)
    if cut == "exponential":
        law = replace(law, cutoff=math.inf)
    lowest, highest = float(law.minimum), law.mean()
    slack = 1e-9 * target
    if not lowest - slack <= target <= highest + slack:
        raise UsageError(
            f"{users} users with mean degree {mu:g} need {items} items of mean degree {target:g} (eq. 1: "
            f"mu/N = nu/M), but {law.describe()} with any {cut} cut has a mean between {lowest:g} and "
            f"{highest:g}. Change the number of users or items, or a law's exponent, minimum or maximum."
        )
    if target <= lowest:
        return replace(law, maximum=law.minimum)
    if target >= highest:
        return law
    if cut == "maximum":
        probability, degree = law.probabilities(), law.support()
        means = np.cumsum(probability * degree) / np.cumsum(probability)
        law = replace(law, maximum=law.minimum + int(np.searchsorted(means, target)))
        if law.mean() <= target * (1 + 1e-12):
            return law
    return _with_mean(law, target)


def _with_mean(law: PowerLaw, target: float) -> PowerLaw:
    """Choose the exponential cut-off that lowers the mean of a law to the target."""
    from scipy.optimize import brentq

    # Solved in log(1 / cutoff): a cut-off of 1/700 leaves only the minimum, one of 1e9 maxima has no effect.
    gentlest = -math.log(min(law.cutoff, 1e9 * (law.maximum or 1)))
    steepest = math.log(700.0)

    def excess(log_rate: float) -> float:
        return replace(law, cutoff=math.exp(-log_rate)).mean() / target - 1

    if excess(gentlest) <= 0:
        return law
    if excess(steepest) >= 0:
        return replace(law, maximum=law.minimum)
    return replace(law, cutoff=math.exp(-brentq(excess, gentlest, steepest, xtol=1e-13, rtol=1e-14)))


def random_graph(users: int, items: int, user_law: PowerLaw, item_law: PowerLaw, *, seed: int = 0) -> RandomGraph:
    """Draw a random graph of M users and N items with the given degree laws (section 2).

    Degrees are drawn from both laws, bounded by the size of the other side. While the sums differ, one random user and
    one random item get new degrees, which is the paper's scheme; then half-edges are joined at random.

    If the means satisfy eq. 1, the sums meet once in about 2.5 s redraws, where s is the standard deviation of their
    difference. Laws whose expected sums differ by more than 4 s are refused (`balanced_item_law` makes them equal).
    After 1000 + 20 s redraws, far more than are usually needed, only redraws that do not widen the gap are kept. That
    makes the sums equal, favours some degrees slightly, and is logged.

    Pairs that were joined twice are swapped with uniformly drawn other edges. A graph too dense for that is built by
    Gale and Ryser's rule and mixed by trades between random users. Degrees that no graph has are drawn again, with an
    error after 50 attempts.
    """
    _check_sizes(users, items)
    _check_seed(seed)
    user_law, item_law = user_law.bounded(items), item_law.bounded(users)
    spread = _check_means(users, items, user_law, item_law)
    user_cdf, item_cdf = user_law.cumulative(), item_law.cumulative()
    free, homing = int(1000 + 20 * spread), int(1_000_000 + 100 * spread)
    gap = 0
    for attempt in range(_ATTEMPTS):
        user_degrees, item_degrees, redraws, gap = compiled.equalise_degrees(
            user_law.sample(users, [seed, attempt, 0]).astype(np.int32),
            item_law.sample(items, [seed, attempt, 1]).astype(np.int32),
            user_cdf,
            user_law.minimum,
            item_cdf,
            item_law.minimum,
            seed,
            attempt,
            free,
            homing,
        )
        if redraws > free:
            log.info("degree sums agreed only after %d redraws; the last %d were guided", redraws, redraws - free)
        if gap == 0 and is_graphical(user_degrees, item_degrees):
            edges = compiled.join_half_edges(user_degrees, item_degrees, seed, attempt)
            users_of, items_of, repairs, rebuilt = edges
            return RandomGraph(users_of, items_of, users, items, user_law, item_law, redraws, repairs, rebuilt)
    why = f"sums still {abs(gap)} apart" if gap else "degrees that no graph without double edges has"
    raise UsageError(
        f"{_ATTEMPTS} draws from {user_law.describe()} for {users} users and {item_law.describe()} for "
        f"{items} items ended in {why}. Add vertices, or lower the laws' maxima."
    )


def is_graphical(user_degrees: ArrayLike, item_degrees: ArrayLike) -> bool:
    """True if a bipartite graph without double edges can have these degrees (Gale and Ryser).

    sum_{n <= k} d_n <= sum_m min(d_m, k)    for every k, items in order of falling degree;  equal sums
    """
    of_users, of_items = np.asarray(user_degrees), np.asarray(item_degrees)
    if of_users.sum(dtype=np.int64) != of_items.sum(dtype=np.int64):
        return False
    if of_users.size and of_users.max() > len(of_items):
        return False
    # sum_m min(d_m, k) grows by the number of users of degree k and more
    at_least = np.cumsum(np.bincount(of_users, minlength=len(of_items) + 1)[::-1])[::-1]
    taken = np.cumsum(np.sort(of_items)[::-1], dtype=np.int64)
    return bool(np.all(taken <= np.cumsum(at_least[1:])))


@dataclass(frozen=True)
class ModelSample:
    """Data drawn from the model, with the truth. Only `users` and `items` would be observed."""

    user_count: int
    item_count: int
    user_vectors: Floats  # [M, K], in the paper: u_m
    item_vectors: Floats  # [N, K], v_n
    user_bias: Floats  # [M], b_m
    item_bias: Floats  # [N], b_n
    hidden_users: Ints  # [|H|], the edges of H, sorted by user, then item
    hidden_items: Ints  # [|H|]
    logit: Floats  # [|H|], a = u'v + b_m + b_n
    liked: Flags  # [|H|], g on the edges of H
    popularity: Floats | None  # [N], the weights that considered items were drawn by
    genres: NDArray[np.int64] | None  # [N], index into catalogue.GENRES

    @property
    def users(self) -> Ints:
        """[|G|] user of each liked pair."""
        return self.hidden_users[self.liked]

    @property
    def items(self) -> Ints:
        """[|G|] item of each liked pair."""
        return self.hidden_items[self.liked]

    def true_logit(self, users: ArrayLike, items: ArrayLike) -> Floats:
        """True logit a of any pairs, considered or not."""
        sides = (self.user_vectors, self.user_bias), (self.item_vectors, self.item_bias)
        return _logits(np.asarray(users), np.asarray(items), *sides)

    def write(self, path: str | os.PathLike[str], seed: int) -> dict[str, Any]:
        """Write likes to `path`, and next to it the truth and titles; return the paths.

        likes.parquet -> likes.truth.safetensors, and if items have genres, likes.titles.parquet.
        """
        truth = Path(path).with_suffix(".truth.safetensors")
        titles = None if self.genres is None else Path(path).with_suffix(".titles" + Path(path).suffix)
        for file in filter(None, (truth, titles)):
            check_writable(file)
        tensors = {name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)}
        write_tensors(truth, tensors, {"kind": TRUTH, "seed": seed})
        if titles is not None:
            names = readable_titles(self.item_count, seed, genres=self.genres)
            write_columns(titles, item=np.arange(len(names), dtype=np.int32), title=names)
        write_columns(path, user=self.users, item=self.items)
        return {"path": os.fspath(path), "truth": str(truth), "titles": None if titles is None else str(titles)}


def simulate_from_model(
    users: int,
    items: int,
    factors: int,
    *,
    tau_user: float = 2.0,
    tau_item: float = 3.5,
    tau_item_bias: float = math.inf,
    tau_user_bias: float = math.inf,
    hidden: Literal["popularity", "random_graph"] = "popularity",
    user_law: PowerLaw | None = None,
    item_law: PowerLaw | None = None,
    genres: int = 0,
    seed: int = 0,
) -> ModelSample:
    """Draw vectors, biases, a hidden graph H and coins on its edges, as eq. 5 assumes.

        u_m ~ N(0, I / tau_user)   v_n ~ N(0, I / tau_item)   b_n ~ N(0, 1 / tau_item_bias)   (inf: no biases)
        g_mn ~ Bernoulli(sigma(u_m'v_n + b_m + b_n))  on the edges of H

    `hidden` is the rule for H. "random_graph": by `random_graph`, with the item law cut off so that eq. 1 holds.
    "popularity": as q(H) assumes; a user's degree is drawn from the user law, and that many items are drawn without
    replacement in proportion to weights drawn from the item law. Without biases, coins are fair on average: half of the
    considered edges are liked, and negatives are in proportion to popularity (c = 1).

    The default laws are d^-1.4 exp(-d/70) from degree 8 on (or the size of the catalogue, if smaller), so that most
    users like something, and d^-0.77. The default precisions are those that the paper learned.

    With `genres` = 2 or more, item vectors have so many centres. Each vector is still N(0, I / tau_item) on its own.
    `catalogue.readable_titles(items, seed, genres=sample.genres)` makes fitting titles.
    """
    _check_sizes(users, items)
    _check_seed(seed)
    if factors < 1:
        raise UsageError(f"factors is {factors}; give at least 1.")
    taus = {"user": tau_user, "item": tau_item, "item_bias": tau_item_bias, "user_bias": tau_user_bias}
    for name, tau in taus.items():
        if not tau > 0:
            raise UsageError(f"tau_{name} is {tau}; a precision is positive (inf switches the term off).")
    user_law = user_law or PowerLaw(1.4, cutoff=70.0, minimum=min(8, items))
    item_law = item_law or PowerLaw(0.77)

    rng = np.random.default_rng([seed, 11])
    user_vectors = rng.standard_normal((users, factors)) / math.sqrt(tau_user)
    item_vectors, genre_of = _item_vectors(rng, items, factors, genres)
    item_vectors /= math.sqrt(tau_item)
    user_bias = rng.standard_normal(users) / math.sqrt(tau_user_bias)
    item_bias = rng.standard_normal(items) / math.sqrt(tau_item_bias)

    popularity: Floats | None = None
    if hidden == "popularity":
        counts = user_law.bounded(items).sample(users, [seed, 12]).astype(np.int32)
        popularity = item_law.bounded(max(users, item_law.minimum)).sample(items, rng).astype(np.float64)
        hidden_users, hidden_items = compiled.draw_considered(counts, popularity, seed)
    elif hidden == "random_graph":
        item_law = balanced_item_law(user_law, item_law, users=users, items=items)
        graph = random_graph(users, items, user_law, item_law, seed=seed)
        hidden_users, hidden_items = graph.users, graph.items
    else:
        raise UsageError(f"hidden is {hidden!r}; choose 'popularity' or 'random_graph'.")

    logit = _logits(hidden_users, hidden_items, (user_vectors, user_bias), (item_vectors, item_bias))
    # sigma(a) > u as a > logistic noise, so that no exp can overflow
    uniform = np.maximum(rng.random(len(logit)), 2.0**-53)
    liked = logit > np.log(uniform) - np.log1p(-uniform)
    return ModelSample(
        user_count=users,
        item_count=items,
        user_vectors=user_vectors,
        item_vectors=item_vectors,
        user_bias=user_bias,
        item_bias=item_bias,
        hidden_users=hidden_users,
        hidden_items=hidden_items,
        logit=logit,
        liked=liked,
        popularity=popularity,
        genres=genre_of,
    )


def _item_vectors(
    rng: np.random.Generator, items: int, factors: int, genres: int
) -> tuple[Floats, NDArray[np.int64] | None]:
    """(standard normal vectors [N, K], genres); with genres, vectors are sqrt(share) centre + sqrt(1 - share) own."""
    if genres not in range(len(GENRES) + 1) or genres == 1:
        raise UsageError(f"genres is {genres}; give 0 for none, or 2 to {len(GENRES)}.")
    own = rng.standard_normal((items, factors))
    if genres == 0:
        return own, None
    centres = rng.standard_normal((genres, factors))
    of = rng.integers(genres, size=items)
    return math.sqrt(_GENRE_SHARE) * centres[of] + math.sqrt(1 - _GENRE_SHARE) * own, of


def _logits(
    users: NDArray[Any], items: NDArray[Any], of_users: tuple[Floats, Floats], of_items: tuple[Floats, Floats]
) -> Floats:
    """Logits a_mn = u_m'v_n + b_m + b_n of pairs; a side is (vectors, biases), gathered a chunk at a time."""
    (user_vectors, user_bias), (item_vectors, item_bias) = of_users, of_items
    logit: Floats = user_bias[users] + item_bias[items]
    for start in range(0, len(logit), _CHUNK):
        part = slice(start, start + _CHUNK)
        logit[part] += np.einsum("ek,ek->e", user_vectors[users[part]], item_vectors[items[part]])
    return logit


def _check_sizes(users: int, items: int) -> None:
    if not (1 <= users < 2**31 and 1 <= items < 2**31):
        raise UsageError(f"{users} users and {items} items: give 1 to {2**31 - 1} of each.")


def _check_seed(seed: int) -> None:
    if not 0 <= seed < 2**64:
        raise UsageError(f"seed is {seed}; give a whole number from 0 to 2^64 - 1.")


def _check_means(users: int, items: int, user_law: PowerLaw, item_law: PowerLaw) -> float:
    """Standard deviation of the difference of the sums; UsageError if their means cannot agree (eq. 1)."""
    mu, nu = user_law.mean(), item_law.mean()
    spread = math.sqrt(users * user_law.variance() + items * item_law.variance())
    if abs(users * mu - items * nu) > _WIDEST_GAP * spread + 0.5:
        sides = mean_constraint(mu, nu, users, items)
        raise UsageError(
            f"the degrees cannot add up: M = {users} users of mean degree mu = {mu:.6g} "
            f"({user_law.describe()}) have {users * mu:.6g} edges, N = {items} items of mean degree "
            f"nu = {nu:.6g} ({item_law.describe()}) have {items * nu:.6g}. Eq. 1 asks for mu/N = nu/M; here "
            f"{sides.user_side:.6g} and {sides.item_side:.6g}. balanced_item_law() cuts the item law off so "
            "that they agree."
        )
    return spread
