"""Types of the compiled kernels (src/core)."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Ints = NDArray[np.int32]
Longs = NDArray[np.int64]

class Side:
    """Rows of one side of the posterior, packed as [mean | variance], each padded to a multiple of eight."""

    def __init__(
        self,
        factors: int,
        rows: Floats,
        bias_mean: Floats | None = None,
        bias_variance: Floats | None = None,
        covariance: Floats | None = None,
    ) -> None: ...

class Edges:
    """Edges by row, with the indices of the other side. Without weights each edge counts once."""

    def __init__(self, starts: Longs, indices: Ints, weights: Floats | None = None) -> None: ...

class Prior:
    """Gaussian priors of single rows; None is a mean of 0, and a precision of tau."""

    def __init__(
        self,
        mean: Floats | None = None,
        precision: Floats | None = None,
        bias_mean: Floats | None = None,
        bias_precision: Floats | None = None,
    ) -> None: ...

class Constants:
    """The numbers that all rows of a pass share."""

    def __init__(
        self,
        offset: float = 0.0,
        likelihood_weight: float = 1.0,
        tau: float = 1.0,
        tau_bias: float = 1.0,
        epsilon: float = 1.0,
        user_offset: Floats | None = None,
        slope: bool = False,
    ) -> None: ...

class Shares:
    """alpha, floor and l of some users and all groups. A pass over users writes to them."""

    def __init__(self, temperature: Doubles, alpha: Floats, floor: Floats, curvature: Floats) -> None: ...
    @staticmethod
    def given(temperature: Doubles, alpha: Floats, floor: Floats, curvature: Floats) -> Shares:
        """Shares that no pass writes to."""

class Groups:
    """The group and beta of each item."""

    def __init__(self, group_of_item: Ints, beta: Doubles, count: int) -> None: ...

class ItemSums:
    """Sums over the items of each group, weighted by beta and then by 1."""

    def __init__(self, second: Doubles, first: Doubles, first_bias: Doubles, scalars: Doubles) -> None: ...

class UserSums:
    """Sums over users for each group, weighted by alpha and then by the floor."""

    def __init__(self, second: Doubles, first: Doubles, scalars: Doubles) -> None: ...

class MassTable:
    """The mass of each group at a grid of log temperatures."""

    def __init__(self, values: Doubles, start: float, step: float) -> None: ...

class Expected:
    """The closed form of the expectation over q(H)."""

    def __init__(
        self,
        shares: Shares,
        groups: Groups,
        *,
        items: ItemSums | None = None,
        masses: MassTable | None = None,
        users: UserSums | None = None,
        liked: Doubles | None = None,
        corrections: Floats | None = None,
    ) -> None: ...

class Pass:
    """Everything that a pass over the rows of one side reads."""

    def __init__(
        self,
        own: Side,
        other: Side,
        liked: Edges,
        unliked: Edges | None,
        constants: Constants,
        *,
        prior: Prior | None = None,
        expected: Expected | None = None,
        own_is_user: bool,
        splits: Longs | None = None,
    ) -> None: ...

class FullPass:
    """A pass with covariances and a Gaussian prior that all rows share."""

    def __init__(self, pass_: Pass, prior_precision: Floats, prior_pull: Floats, quadrature: bool = False) -> None: ...

class WalkTable:
    """Rows of the walk, with the slots of alias tables if it is for draws."""

    def __init__(
        self, starts: Longs, items: Ints, shares: Floats, rest: Floats, mix: float, slots: Ints | None = None
    ) -> None: ...

class Tilt:
    """A posterior that draws lean on."""

    def __init__(self, strength: float, users: Side, items: Side, constants: Constants) -> None: ...

class Rules:
    """Rules that make pairs impossible, by classes and by times."""

    def __init__(
        self,
        most: Longs,
        items: int,
        *,
        user_class: Ints | None = None,
        item_class: Ints | None = None,
        allowed: NDArray[np.uint64] | None = None,
        user_times: Doubles | None = None,
        item_times: Doubles | None = None,
    ) -> None: ...

class Known:
    """Pairs of some users that were considered and not liked, or that are impossible."""

    def __init__(
        self,
        users: int,
        items: int,
        considered: Edges | None = None,
        impossible: Edges | None = None,
        rules: Rules | None = None,
    ) -> None: ...

class LiftTable:
    """Rows of the walk, for the lift of users who like some items."""

    def __init__(
        self,
        starts: Longs,
        items: Ints,
        shares: Floats,
        rest: Floats,
        inverse: Floats,
        mix: float,
        sharpness: int = 1,
        unknown: Ints | None = None,
    ) -> None: ...
    def log_ratios(self, liked_starts: Longs, liked: Ints) -> Floats: ...
    def log_ratios_of(self, liked_starts: Longs, liked: Ints, pair_starts: Longs, pair_items: Ints) -> Floats: ...

Moments = list[float]
WalkSums = tuple[Longs, Ints, NDArray[np.uint64]]

def sort_pairs(rows: Ints, columns: Ints, row_count: int, column_count: int) -> tuple[Longs, Ints, int]: ...
def give_back_memory() -> None: ...
def keep_columns(starts: Longs, indices: Ints, keep: NDArray[np.bool_]) -> tuple[Ints, Ints]: ...
def count_columns(indices: Ints, counts: Longs, shift: int = 0) -> None: ...
def counts_to_places(counts: Longs, starts: Longs) -> None: ...
def scatter_rows(
    starts: Longs,
    indices: Ints,
    first: int,
    last: int,
    shift: int,
    places: Longs,
    rows_out: Ints,
    low: NDArray[np.uint16] | None = None,
) -> None: ...
def add_to_edges(starts: Longs, indices: Ints, rows: Ints, columns: Ints, amounts: Longs) -> Longs: ...
def transpose_weights(indices: Ints, weights: Floats, starts_out: Longs) -> Floats: ...
def sort_bucket(low: NDArray[np.uint16], rows: Ints, begin: int, starts: Longs) -> None: ...
def alias_table(weights: Doubles) -> tuple[NDArray[np.uint64], Ints]: ...
def count_negatives(
    seed: int,
    sweep: int,
    rate: float,
    weights: Doubles,
    thresholds: NDArray[np.uint64],
    aliases: Ints,
    starts: Longs,
    liked: Ints,
    first: int,
    last: int,
    counts: Longs,
    first_user: int = 0,
    known: Known | None = None,
) -> None: ...
def expected_negatives(
    rate: float, weights: Doubles, starts: Longs, liked: Ints, known: Known | None = None
) -> Doubles: ...
def draw_negatives(
    seed: int,
    sweep: int,
    rate: float,
    weights: Doubles,
    thresholds: NDArray[np.uint64],
    aliases: Ints,
    starts: Longs,
    liked: Ints,
    first: int,
    last: int,
    out_starts: Longs,
    out: Ints,
    first_user: int = 0,
    walk: WalkTable | None = None,
    tilt: Tilt | None = None,
    known: Known | None = None,
) -> tuple[int, int, int]: ...
def own_inclusion(
    table: WalkTable,
    weights: Doubles,
    total: float,
    saturation: Doubles,
    grid_start: float,
    grid_step: float,
    starts: Longs,
    liked: Ints,
    pair_starts: Longs,
    items: Ints,
    counts: Doubles,
    closed_starts: Longs | None = None,
    closed: Ints | None = None,
    temperatures: Doubles | None = None,
) -> Doubles: ...
def solve_temperatures(
    table: Doubles,
    grid_start: float,
    grid_step: float,
    weights: Doubles,
    starts: Longs,
    liked: Ints,
    first: int,
    last: int,
    negatives: float,
    out: Doubles,
    wanted: Doubles | None = None,
) -> None: ...
def update_rows(
    pass_: Pass,
    first: int,
    last: int,
    rows: Floats,
    bias_mean: Floats | None = None,
    bias_variance: Floats | None = None,
    which: Ints | None = None,
) -> tuple[float, int, Moments]: ...
def update_full_rows(
    pass_: FullPass,
    first: int,
    last: int,
    rows: Floats | None = None,
    bias_mean: Floats | None = None,
    bias_variance: Floats | None = None,
    covariance: Floats | None = None,
) -> tuple[float, int, Moments]: ...
def edge_bound(pass_: Pass, first: int, last: int) -> float: ...
def sum_rows(
    pass_: Pass,
    which: Ints,
    low: int,
    high: int,
    with_groups: bool,
    second: Floats,
    first: Floats,
    bias: Floats,
    block: int = 0,
    rows: Floats | None = None,
    bias_mean: Floats | None = None,
    bias_variance: Floats | None = None,
) -> float: ...
def solve_rows(
    pass_: Pass,
    which: Ints,
    second: Floats,
    first: Floats,
    bias: Floats,
    rows: Floats,
    bias_mean: Floats | None = None,
    bias_variance: Floats | None = None,
    block: int = 0,
) -> tuple[int, Moments]: ...
def liked_sums(pass_: Pass, first: int, last: int) -> Doubles: ...
def edge_corrections(expected: Expected, counts: Ints, items: Ints) -> Floats: ...
def group_sums(pass_: Pass, first: int, last: int) -> tuple[Doubles, Doubles, Doubles]: ...
def item_group_sums(items: Side, offset: float, groups: Groups) -> tuple[Doubles, Doubles, Doubles, Doubles]: ...
def top_items(
    factors: int,
    users: Floats,
    user_stride: int,
    rows: Longs,
    items: Floats,
    base: Floats,
    k: int,
    seen_starts: Longs | None = None,
    seen: Ints | None = None,
    lift_table: LiftTable | None = None,
    lift: float = 0.0,
    liked_starts: Longs | None = None,
    liked: Ints | None = None,
) -> tuple[Ints, Floats]: ...
def logarithms(x: Floats) -> tuple[Floats, Floats]: ...
def count_ranks(
    scores: Floats | Doubles, starts: Longs, held: Ints, seen_starts: Longs, seen: Ints
) -> tuple[Longs, Longs, int]: ...
def count_weighted_ranks(
    logits: Floats,
    log_pi: Floats,
    lifts: Floats | None,
    weights: Floats,
    starts: Longs,
    held: Ints,
    seen_starts: Longs,
    seen: Ints,
) -> tuple[Longs, Longs, int]: ...
def best_of_rows(scores: Floats | Doubles, k: int, seen_starts: Longs, seen: Ints) -> tuple[Ints, int]: ...
def pair_moments(own: Side, other: Side, own_rows: Longs, other_rows: Ints) -> tuple[Floats, Floats]: ...
def logistic(xi_squared: Floats) -> tuple[Floats, Floats]: ...
def coordinate_blocks(factors: int) -> list[int]: ...
def fma_loop(rounds: int) -> tuple[float, int]: ...
def step_together(most: int) -> int: ...
def instruction_set() -> str: ...
def instruction_sets() -> list[str]: ...
def use_instruction_set(name: str) -> None: ...

class WalkGraph:
    def __init__(
        self,
        item_starts: Longs,
        users: Ints,
        user_starts: Longs,
        items: Ints,
        pull: Doubles,
        most: int,
        first_user: int = 0,
        first_item: int = 0,
        numbers: Ints | None = None,
    ) -> None: ...
    def work(self) -> Longs: ...
    def sums(self, first: int, last: int) -> WalkSums: ...
    def cut_rows(self, first: int, last: int, p: Doubles, keep: int) -> tuple[Longs, Ints, Floats, Floats]: ...

def add_walk_sums(
    a_starts: Longs,
    a_items: Ints,
    a_sums: NDArray[np.uint64],
    b_starts: Longs,
    b_items: Ints,
    b_sums: NDArray[np.uint64],
) -> WalkSums: ...
def cut_walk(
    starts: Longs, items: Ints, sums: NDArray[np.uint64], p: Doubles, keep: int
) -> tuple[Longs, Ints, Floats, Floats]: ...
def walk_slots(starts: Longs, items: Ints, shares: Floats, rest: Floats, mix: float) -> Ints: ...
def inverse_factor(matrix: Doubles) -> Doubles: ...
def join_around(
    user_counts: Ints, item_counts: Ints, liked_starts: Longs, liked: Ints, seed: int, sweep: int, tries: int
) -> tuple[Ints, Ints, int, int]: ...
def equalise_degrees(
    user_degrees: Ints,
    item_degrees: Ints,
    user_cdf: Doubles,
    user_minimum: int,
    item_cdf: Doubles,
    item_minimum: int,
    seed: int,
    attempt: int,
    free: int,
    homing: int,
) -> tuple[Ints, Ints, int, int]: ...
def join_half_edges(
    user_degrees: Ints, item_degrees: Ints, seed: int, attempt: int
) -> tuple[Ints, Ints, int, bool]: ...
def draw_considered(counts: Ints, weights: Doubles, seed: int) -> tuple[Ints, Ints]: ...
