from typing import Any

import numpy as np
from numpy.typing import NDArray

class Expected:
    def __init__(self, **arguments: Any) -> None: ...

class Pass:
    def __init__(self, **arguments: Any) -> None: ...

class FullPass:
    def __init__(self, **arguments: Any) -> None: ...

class WalkTable:
    def __init__(
        self,
        starts: NDArray[np.int64],
        items: NDArray[np.int32],
        shares: NDArray[np.float32],
        rest: NDArray[np.float32],
        mix: float,
        slots: NDArray[np.int32] | None = None,
    ) -> None: ...

class Tilt:
    def __init__(
        self,
        strength: float,
        offset: float,
        factors: int,
        users: NDArray[np.float32],
        user_bias_mean: NDArray[np.float32] | None,
        user_bias_variance: NDArray[np.float32] | None,
        items: NDArray[np.float32],
        item_bias_mean: NDArray[np.float32] | None,
        item_bias_variance: NDArray[np.float32] | None,
        user_offset: NDArray[np.float32] | None = None,
    ) -> None: ...

class Known:
    def __init__(self, **arguments: Any) -> None: ...

class LiftTable:
    def __init__(
        self,
        starts: NDArray[np.int64],
        items: NDArray[np.int32],
        shares: NDArray[np.float32],
        rest: NDArray[np.float32],
        inverse: NDArray[np.float32],
        mix: float,
        sharpness: int = 1,
        unknown: NDArray[np.int32] | None = None,
    ) -> None: ...
    def log_ratios(self, liked_starts: NDArray[np.int64], liked: NDArray[np.int32]) -> NDArray[np.float32]: ...
    def log_ratios_of(
        self,
        liked_starts: NDArray[np.int64],
        liked: NDArray[np.int32],
        pair_starts: NDArray[np.int64],
        pair_items: NDArray[np.int32],
    ) -> NDArray[np.float32]: ...

Moments = list[float]
WalkSums = tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.uint64]]

def sort_pairs(
    rows: NDArray[np.int32], columns: NDArray[np.int32], row_count: int, column_count: int
) -> tuple[NDArray[np.int64], NDArray[np.int32], int]: ...
def give_back_memory() -> None: ...
def keep_columns(
    starts: NDArray[np.int64], indices: NDArray[np.int32], keep: NDArray[np.bool_]
) -> tuple[NDArray[np.int32], NDArray[np.int32]]: ...
def count_columns(indices: NDArray[np.int32], counts: NDArray[np.int64], shift: int = 0) -> None: ...
def counts_to_places(counts: NDArray[np.int64], starts: NDArray[np.int64]) -> None: ...
def scatter_rows(
    starts: NDArray[np.int64],
    indices: NDArray[np.int32],
    first: int,
    last: int,
    shift: int,
    places: NDArray[np.int64],
    rows_out: NDArray[np.int32],
    low: NDArray[np.uint16] | None = None,
) -> None: ...
def add_to_edges(
    starts: NDArray[np.int64],
    indices: NDArray[np.int32],
    rows: NDArray[np.int32],
    columns: NDArray[np.int32],
    amounts: NDArray[np.int64],
) -> NDArray[np.int64]: ...
def transpose_weights(
    indices: NDArray[np.int32], weights: NDArray[np.float32], starts_out: NDArray[np.int64]
) -> NDArray[np.float32]: ...
def sort_bucket(low: NDArray[np.uint16], rows: NDArray[np.int32], begin: int, starts: NDArray[np.int64]) -> None: ...
def alias_table(weights: NDArray[np.float64]) -> tuple[NDArray[np.uint64], NDArray[np.int32]]: ...
def count_negatives(
    seed: int,
    sweep: int,
    rate: float,
    weights: NDArray[np.float64],
    thresholds: NDArray[np.uint64],
    aliases: NDArray[np.int32],
    starts: NDArray[np.int64],
    liked: NDArray[np.int32],
    first: int,
    last: int,
    counts: NDArray[np.int64],
    first_user: int = 0,
    known: Known | None = None,
) -> None: ...
def expected_negatives(
    rate: float,
    weights: NDArray[np.float64],
    starts: NDArray[np.int64],
    liked: NDArray[np.int32],
    known: Known | None = None,
) -> NDArray[np.float64]: ...
def draw_negatives(
    seed: int,
    sweep: int,
    rate: float,
    weights: NDArray[np.float64],
    thresholds: NDArray[np.uint64],
    aliases: NDArray[np.int32],
    starts: NDArray[np.int64],
    liked: NDArray[np.int32],
    first: int,
    last: int,
    out_starts: NDArray[np.int64],
    out: NDArray[np.int32],
    first_user: int = 0,
    walk: WalkTable | None = None,
    tilt: Tilt | None = None,
    known: Known | None = None,
) -> tuple[int, int, int]: ...
def own_inclusion(
    table: WalkTable,
    weights: NDArray[np.float64],
    total: float,
    saturation: NDArray[np.float64],
    grid_start: float,
    grid_step: float,
    starts: NDArray[np.int64],
    liked: NDArray[np.int32],
    pair_starts: NDArray[np.int64],
    items: NDArray[np.int32],
    counts: NDArray[np.float64],
    closed_starts: NDArray[np.int64] | None = None,
    closed: NDArray[np.int32] | None = None,
    temperatures: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]: ...
def solve_temperatures(
    table: NDArray[np.float64],
    grid_start: float,
    grid_step: float,
    weights: NDArray[np.float64],
    starts: NDArray[np.int64],
    liked: NDArray[np.int32],
    first: int,
    last: int,
    negatives: float,
    out: NDArray[np.float64],
    wanted: NDArray[np.float64] | None = None,
) -> None: ...
def update_rows(
    pass_: Pass,
    first: int,
    last: int,
    rows: NDArray[np.float32],
    bias_mean: NDArray[np.float32] | None = None,
    bias_variance: NDArray[np.float32] | None = None,
    which: NDArray[np.int32] | None = None,
) -> tuple[float, int, Moments]: ...
def update_full_rows(
    pass_: FullPass,
    first: int,
    last: int,
    rows: NDArray[np.float32] | None = None,
    bias_mean: NDArray[np.float32] | None = None,
    bias_variance: NDArray[np.float32] | None = None,
    covariance: NDArray[np.float32] | None = None,
) -> tuple[float, int, Moments]: ...
def edge_bound(pass_: Pass, first: int, last: int) -> float: ...
def sum_rows(
    pass_: Pass,
    which: NDArray[np.int32],
    low: int,
    high: int,
    with_groups: bool,
    second: NDArray[np.float32],
    first: NDArray[np.float32],
    bias: NDArray[np.float32],
    block: int = 0,
    rows: NDArray[np.float32] | None = None,
    bias_mean: NDArray[np.float32] | None = None,
    bias_variance: NDArray[np.float32] | None = None,
) -> float: ...
def solve_rows(
    pass_: Pass,
    which: NDArray[np.int32],
    second: NDArray[np.float32],
    first: NDArray[np.float32],
    bias: NDArray[np.float32],
    rows: NDArray[np.float32],
    bias_mean: NDArray[np.float32] | None = None,
    bias_variance: NDArray[np.float32] | None = None,
    block: int = 0,
) -> tuple[int, Moments]: ...
def liked_sums(pass_: Pass, first: int, last: int) -> NDArray[np.float64]: ...
def edge_corrections(
    expected: Expected, counts: NDArray[np.int32], items: NDArray[np.int32]
) -> NDArray[np.float32]: ...
def group_sums(
    pass_: Pass, first: int, last: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]: ...
def item_group_sums(
    factors: int,
    rows: NDArray[np.float32],
    bias_mean: NDArray[np.float32] | None,
    bias_variance: NDArray[np.float32] | None,
    offset: float,
    beta: NDArray[np.float64],
    group_of_item: NDArray[np.int32],
    groups: int,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]: ...
def top_items(
    factors: int,
    users: NDArray[np.float32],
    user_stride: int,
    rows: NDArray[np.int64],
    items: NDArray[np.float32],
    base: NDArray[np.float32],
    k: int,
    seen_starts: NDArray[np.int64] | None = None,
    seen: NDArray[np.int32] | None = None,
    lift_table: LiftTable | None = None,
    lift: float = 0.0,
    liked_starts: NDArray[np.int64] | None = None,
    liked: NDArray[np.int32] | None = None,
) -> tuple[NDArray[np.int32], NDArray[np.float32]]: ...
def logarithms(x: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]: ...
def count_ranks(
    scores: NDArray[np.float32] | NDArray[np.float64],
    starts: NDArray[np.int64],
    held: NDArray[np.int32],
    seen_starts: NDArray[np.int64],
    seen: NDArray[np.int32],
) -> tuple[NDArray[np.int64], NDArray[np.int64], int]: ...
def count_weighted_ranks(
    logits: NDArray[np.float32],
    log_pi: NDArray[np.float32],
    lifts: NDArray[np.float32] | None,
    weights: NDArray[np.float32],
    starts: NDArray[np.int64],
    held: NDArray[np.int32],
    seen_starts: NDArray[np.int64],
    seen: NDArray[np.int32],
) -> tuple[NDArray[np.int64], NDArray[np.int64], int]: ...
def best_of_rows(
    scores: NDArray[np.float32] | NDArray[np.float64],
    k: int,
    seen_starts: NDArray[np.int64],
    seen: NDArray[np.int32],
) -> tuple[NDArray[np.int32], int]: ...
def pair_moments(
    factors: int,
    own: NDArray[np.float32],
    own_bias_mean: NDArray[np.float32] | None,
    own_bias_variance: NDArray[np.float32] | None,
    other: NDArray[np.float32],
    other_bias_mean: NDArray[np.float32] | None,
    other_bias_variance: NDArray[np.float32] | None,
    own_rows: NDArray[np.int64],
    other_rows: NDArray[np.int32],
) -> tuple[NDArray[np.float32], NDArray[np.float32]]: ...
def logistic(xi_squared: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]: ...
def coordinate_blocks(factors: int) -> list[int]: ...
def fma_loop(rounds: int) -> tuple[float, int]: ...
def step_together(most: int) -> int: ...
def instruction_set() -> str: ...
def instruction_sets() -> list[str]: ...
def use_instruction_set(name: str) -> None: ...
def __getattr__(name: str) -> Any: ...

class WalkGraph:
    def __init__(
        self,
        item_starts: NDArray[np.int64],
        users: NDArray[np.int32],
        user_starts: NDArray[np.int64],
        items: NDArray[np.int32],
        pull: NDArray[np.float64],
        most: int,
        first_user: int = 0,
        first_item: int = 0,
        numbers: NDArray[np.int32] | None = None,
    ) -> None: ...
    def work(self) -> NDArray[np.int64]: ...
    def sums(self, first: int, last: int) -> WalkSums: ...
    def cut_rows(
        self, first: int, last: int, p: NDArray[np.float64], keep: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32], NDArray[np.float32]]: ...

def add_walk_sums(
    a_starts: NDArray[np.int64],
    a_items: NDArray[np.int32],
    a_sums: NDArray[np.uint64],
    b_starts: NDArray[np.int64],
    b_items: NDArray[np.int32],
    b_sums: NDArray[np.uint64],
) -> WalkSums: ...
def cut_walk(
    starts: NDArray[np.int64],
    items: NDArray[np.int32],
    sums: NDArray[np.uint64],
    p: NDArray[np.float64],
    keep: int,
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32], NDArray[np.float32]]: ...
def walk_slots(
    starts: NDArray[np.int64],
    items: NDArray[np.int32],
    shares: NDArray[np.float32],
    rest: NDArray[np.float32],
    mix: float,
) -> NDArray[np.int32]: ...
def inverse_factor(matrix: NDArray[np.float64]) -> NDArray[np.float64]: ...
def join_around(
    user_counts: NDArray[np.int32],
    item_counts: NDArray[np.int32],
    liked_starts: NDArray[np.int64],
    liked: NDArray[np.int32],
    seed: int,
    sweep: int,
    tries: int,
) -> tuple[NDArray[np.int32], NDArray[np.int32], int, int]: ...
