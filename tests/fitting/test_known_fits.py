"""Fits with considered and impossible pairs: read from any source, the same bits anywhere, never recommended."""

from __future__ import annotations

import json
import sqlite3
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

import considerate
from considerate import Impossible, Recommender
from considerate.data import known, read_interactions
from considerate.data.graph import Adjacency, Graph, divide, run_serially
from considerate.data.known import Known
from considerate.data.known_tables import read_impossible, read_pairs, read_times
from considerate.data.options import ReaderOptions
from considerate.distributed.backends.out_of_core import OutOfCore
from considerate.distributed.division import Division
from considerate.errors import CheckpointError, DataError, MemoryLimitError, ModelFileError, UsageError
from considerate.evaluation.calibration import recovery
from considerate.fitting import session
from considerate.fitting.memory import WalkSize, check_memory, known_memory, needed_memory
from considerate.fitting.session import make_graph
from considerate.inference.plan import FitPlan
from considerate.inference.updates import RowClasses
from considerate.model.file import load_model
from considerate.simulation.simulate import simulate_from_model
from considerate.study.fits import Compute, fit_ours
from considerate.study.material import read_material
from tests.engine.test_known import rows_of
from tests.helpers.divided_fits import assert_same, made, several_parts, small_leaves
from tests.helpers.shell import run

USERS, ITEMS = 60, 40


def world(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(likes, considered, impossible) of two groups of users, who like the items of their own."""
    random = np.random.default_rng(seed)
    same = (np.arange(USERS)[:, None] % 2) == (np.arange(ITEMS) % 2)
    chance = random.random((USERS, ITEMS))
    likes = chance < np.where(same, 0.5, 0.05)
    considered = ~likes & (random.random((USERS, ITEMS)) < np.where(same, 0.05, 0.4))
    impossible = ~likes & ~considered & (random.random((USERS, ITEMS)) < 0.2)
    return likes, considered, impossible


def matrix(pairs: np.ndarray) -> sp.csr_matrix:
    return sp.csr_matrix(pairs.astype(np.float32))


def table(pairs: np.ndarray, **more: Any) -> dict[str, Any]:
    users, items = np.nonzero(pairs)
    columns = {"user": [f"u{m:02}" for m in users], "item": [f"i{n:02}" for n in items]}
    return columns | {name: [value] * len(users) for name, value in more.items()}


def small(**settings: Any) -> Recommender:
    return Recommender(**({"factors": 4, "sweeps": 8, "tolerance": 0.0, "threads": 1, "seed": 2} | settings))


def events() -> pa.Table:
    """One log: buys are likes; views that were not bought are considered; rows of neither are neither."""
    likes, considered, _ = world()
    tables = [pa.table(table(pairs, event=name)) for pairs, name in ((likes, "buy"), (considered | likes, "view"))]
    return pa.concat_tables([*tables, pa.table(table(~likes & ~considered, event="scroll"))])


# --- Reading ---


def test_one_event_log_is_likes_and_considered_pairs(tmp_path):
    likes, considered, _ = world()
    path = tmp_path / "events.parquet"
    pq.write_table(events(), path)
    one = small().fit(path, where="event = 'buy'", considered_where="event = 'view'")
    two = small().fit(table(likes), considered=table(considered))
    np.testing.assert_array_equal(one.item_factors, two.item_factors)
    three = small().fit(events(), where="event = 'buy'", considered=events(), considered_where="event = 'view'")
    np.testing.assert_array_equal(one.item_factors, three.item_factors)
    without = small().fit(table(likes))
    assert not np.array_equal(one.item_factors, without.item_factors)


def test_dislikes_by_a_rule_on_ratings():
    likes, considered, _ = world()
    rated = pa.concat_tables([pa.table(table(likes, rating=5)), pa.table(table(considered, rating=1))])
    one = small().fit(rated, where="rating >= 4", considered_where="rating <= 2")
    two = small().fit(table(likes), considered=pa.table(table(considered, rating=1)))  # each row of a file of its own
    np.testing.assert_array_equal(one.item_factors, two.item_factors)


def test_pairs_come_from_any_source(tmp_path):
    _, considered, _ = world()
    columns = table(considered)
    wanted = read_pairs(columns, ReaderOptions()).digest()
    frame = pa.table(columns)
    pq.write_table(frame, tmp_path / "pairs.parquet")
    with open(tmp_path / "pairs.csv", "w") as file:
        file.write("item,user\n" + "".join(f"{n},{m}\n" for m, n in zip(*columns.values())))
    with sqlite3.connect(tmp_path / "pairs.db") as base:
        base.execute("create table seen (user text, item text)")
        base.executemany("insert into seen values (?, ?)", zip(*columns.values()))
    database = (f"sqlite:///{tmp_path / 'pairs.db'}", "select user, item from seen")
    for source in (frame, frame.to_pandas(), tmp_path / "pairs.parquet", tmp_path / "pairs.csv", database):
        assert read_pairs(source, ReaderOptions()).digest() == wanted
    named = frame.rename_columns(["who", "what"])
    options = ReaderOptions(user_column="who", item_column="what")
    assert read_pairs(named, options).digest() == wanted
    assert read_pairs(frame, options).digest() == wanted  # a file of its own has other names


def test_a_like_is_a_like_and_strangers_are_left_out():
    likes, considered, impossible = world()
    strangers = {"user": ["nobody", "u00"], "item": ["i00", "nothing"]}
    more = {name: [*values, *strangers[name]] for name, values in table(considered | likes).items()}
    plain = small().fit(table(likes), considered=table(considered), impossible=table(impossible))
    again = small().fit(table(likes), considered=more, impossible=table(impossible | likes | considered))
    np.testing.assert_array_equal(plain.item_factors, again.item_factors)
    assert plain.model_.user_count == again.model_.user_count == USERS
    found = plain.model_.limits.impossible
    np.testing.assert_array_equal(found.degrees, impossible.sum(axis=1))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (matrix(world()[1]), "a matrix of pairs goes with a matrix of likes"),
        (lambda: Impossible(user_groups={"u00": "a"}), "go together"),
        (lambda: Impossible(active={"user": ["u00"], "from": [1], "until": [2]}), "active goes with available"),
        (Impossible(available={"item": ["i00"], "from": [3], "until": [1]}), "from later than until"),
        (Impossible(available={"item": ["i00"], "price": [3]}), "no column 'from' and none 'until'"),
        (Impossible(available={"item": ["i00"], "from": [1]}), "time_column"),
        (Impossible(item_groups=pa.table({"x": [1], "y": [2]}), user_groups={"u00": "a"}), "Call it 'item'"),
    ],
)
def test_known_pairs_that_cannot_be_are_refused(source, message):
    with pytest.raises((UsageError, DataError), match=message):
        small().fit(table(world()[0]), impossible=source() if callable(source) else source)


def test_considered_are_needs_considered_pairs():
    likes, considered, _ = world()
    with pytest.raises(UsageError, match="no considered pair"):
        small(considered_are="all").fit(matrix(likes))
    for wrong in ({"hidden": "expected"}, {"opening": 3}, {"tilt": 0.5}, {"negatives": "auto"}):
        with pytest.raises(UsageError, match="considered_are"):
            small(considered_are="sample", **wrong).fit(matrix(likes), considered=matrix(considered))


def test_more_pairs_than_a_sample_may_have_are_refused(monkeypatch):
    likes, considered, _ = world()
    monkeypatch.setattr(session, "MOST_NEGATIVES", 0.1)
    with pytest.raises(UsageError, match="give fewer"):
        small(considered_are="sample").fit(matrix(likes), considered=matrix(considered))


# --- Rules ---


def rules() -> tuple[Impossible, np.ndarray]:
    """Tables by id, and the pairs that they forbid."""
    user, item = np.arange(USERS)[:, None], np.arange(ITEMS)
    groups = [["a"], ["b"], ["a", "b"], []]  # by m % 4
    pairs = [(f"u{m:02}", group) for m in range(USERS) for group in groups[m % 4]]
    items = [(f"i{n:02}", "a" if n % 5 == 0 else "b") for n in range(ITEMS) if n % 5 < 2]  # the others are for everyone
    times = {"item": [f"i{n:02}" for n in range(0, ITEMS, 3)], "from": list(range(0, ITEMS, 3))}
    active = {"user": [f"u{m:02}" for m in range(USERS)], "until": [float(m) for m in range(USERS)]}
    made = Impossible(
        user_groups={"user": [m for m, _ in pairs], "group": [group for _, group in pairs]},
        item_groups={"item": [n for n, _ in items], "group": [group for _, group in items]},
        available=times,
        active=active,
    )
    in_a, in_b = np.isin(user % 4, (0, 2)), np.isin(user % 4, (1, 2))
    forbidden = ((item % 5 == 0) & ~in_a) | ((item % 5 == 1) & ~in_b) | ((item % 3 == 0) & (item > user))
    return made, forbidden


def test_rules_of_groups_and_times():
    likes, _, _ = world()
    given, forbidden = rules()
    found = small().fit(table(likes), impossible=given)
    limits = found.model_.limits
    np.testing.assert_array_equal([limits.rules.forbid(m, slice(None)) for m in range(USERS)], forbidden)
    every = found.recommend_table(None, ITEMS).to_pydict()
    pairs = {(int(m[1:]), int(n[1:])) for m, n in zip(every["user"], every["item"])}
    assert pairs == {(m, n) for m, n in zip(*np.nonzero(~forbidden & ~likes))}


def test_the_times_of_users_are_those_of_their_likes():
    likes, _, _ = world()
    users, items = np.nonzero(likes)
    dated = table(likes) | {"time": [f"2024-01-{1 + n % 28:02}" for n in items]}
    shop = {"item": ["i03", "i04"], "from": ["2024-02-01", None], "until": [None, "2023-12-31"]}
    found = small().fit(dated, time_column="time", impossible=Impossible(available=shop))
    forbidden = np.array([found.model_.limits.rules.forbid(m, slice(None)) for m in range(USERS)])
    assert forbidden[:, [3, 4]].all()
    assert forbidden.sum() == 2 * USERS
    late = {"item": ["i05"], "from": ["2024-01-20"]}
    found = small().fit(dated, time_column="time", impossible=Impossible(available=late))
    last = np.array([(items[users == m] % 28).max() + 1 for m in range(USERS)])
    assert 0 < (last < 20).sum() < USERS
    rows = np.array([found.model_.limits.rules.forbid(m, slice(None))[5] for m in range(USERS)])
    np.testing.assert_array_equal(rows, last < 20)


def test_the_widest_of_several_times_of_an_item_counts():
    found = read_times({"item": [7, 7, 8], "from": [3, 1, None], "until": [4, 9, 5]}, "item")
    np.testing.assert_array_equal(found.times, [[1, 9], [-np.inf, 5]])


def test_closed_forms_have_rules_as_pairs_or_say_that_they_are_too_many(monkeypatch):
    likes, considered, _ = world()
    given, forbidden = rules()
    one = small(hidden="expected").fit(table(likes), considered=table(considered), impossible=given)
    two = small(hidden="expected").fit(table(likes), considered=table(considered), impossible=table(forbidden))
    np.testing.assert_array_equal(one.item_factors, two.item_factors)
    monkeypatch.setattr(known, "MOST_EXPANDED", 100)
    with pytest.raises(UsageError, match="opening=0"):
        small().fit(table(likes), impossible=given)
    small(opening=0).fit(table(likes), impossible=given)


# --- Fits ---

SETTINGS: dict[str, dict[str, Any]] = {
    "walk": {"opening": 2, "negatives": 0.7},
    "popularity": {"consideration": "popularity", "tilt": 0.5},
    "expected": {"hidden": "expected", "user_bias": True, "negatives": 1.5},
    "sample": {"considered_are": "sample", "user_bias": True},
    "all": {"considered_are": "all", "factors": 70},
}


def large() -> tuple[sp.csr_matrix, dict[str, Any]]:
    """Likes of three parts, and what is known beside them: pairs, and times that forbid some."""
    likes, random = several_parts(), np.random.default_rng(5)
    users, items = likes.shape
    pairs = [sp.random(users, items, 0.02, "csr", np.float32, random, np.ones) for _ in range(2)]
    until = {"item": np.arange(items), "until": random.integers(0, 20, items)}
    active = {"user": np.arange(users), "from": random.integers(0, 10, users)}
    return likes, {"considered": pairs[0], "impossible": Impossible(pairs[1], until, active)}


@pytest.fixture(params=[None, 40], ids=["no light items", "light items"])
def leaves(request):
    """Items of few likes are summed from their edges, which travel; so small a graph has some if a leaf has many."""
    with nullcontext() if request.param is None else small_leaves(request.param):
        classes = RowClasses.of_items(make_graph(read_interactions(large()[0])), 1.7)
        assert bool(classes.light) == (request.param is not None)
        assert not classes.is_light.all()
        yield


@pytest.mark.slow
@pytest.mark.parametrize("kind", SETTINGS)
def test_the_same_bits_for_any_threads_and_out_of_core(kind, leaves, tmp_path):
    likes, beside = large()
    plain = made(**SETTINGS[kind]).fit(likes, **beside)
    assert_same(made(**SETTINGS[kind] | {"threads": 2}).fit(likes, **beside), plain)
    found = made(**SETTINGS[kind]).fit(likes, **beside, backend=OutOfCore(tmp_path, threads=2, item_shards=3))
    assert_same(found, plain)
    wanted, got = plain.recommend([3, 1700], N=300), found.recommend([3, 1700], N=300)
    np.testing.assert_array_equal(wanted[0], got[0])
    for row, user in enumerate((3, 1700)):
        mask = plain.model_.limits.impossible_items(user, likes.shape[1])
        assert mask.any()
        assert not mask[wanted[0][row][wanted[0][row] >= 0]].any()


def test_a_division_by_items_or_inner_sweeps_are_refused(tmp_path):
    likes, beside = large()
    for how in ({"division": "items"}, {"inner_sweeps": 2}):
        with pytest.raises(UsageError, match="stay with their users"):
            made().fit(likes, **beside, backend=OutOfCore(tmp_path, **how))


def test_a_checkpoint_is_resumed_to_the_same_bits_and_not_with_other_pairs(tmp_path):
    likes, considered, impossible = world()
    beside = {"considered": matrix(considered), "impossible": matrix(impossible)}
    whole = small().fit(matrix(likes), **beside)
    small(sweeps=4).fit(matrix(likes), **beside, checkpoint=tmp_path, checkpoint_every=2)
    resumed = small().fit(matrix(likes), **beside, checkpoint=tmp_path, resume=True)
    np.testing.assert_array_equal(resumed.item_factors, whole.item_factors)
    for wrong in ({"impossible": beside["impossible"]}, beside | {"considered": matrix(considered & (chance() < 0.9))}):
        with pytest.raises(CheckpointError, match="considered pairs"):
            small().fit(matrix(likes), **wrong, checkpoint=tmp_path, resume=True)


def chance() -> np.ndarray:
    return np.random.default_rng(9).random((USERS, ITEMS))


def test_the_memory_estimate_counts_them():
    likes, considered, impossible = world()
    graph, plan = Graph.from_adjacency(rows_of(likes), ITEMS), FitPlan.of_paper(opening=3, consideration="walk")
    pairs = Known(rows_of(considered), rows_of(impossible))
    enough = needed_memory(USERS, ITEMS, graph.edges, plan, WalkSize.of(graph, plan))
    check_memory(graph, plan, enough)
    with pytest.raises(MemoryLimitError):
        check_memory(graph, plan, enough - 8 * graph.edges - 16 * (USERS + ITEMS), pairs)
    assert known_memory(graph.edges, pairs, plan) > 16 * (considered | impossible).sum()
    assert known_memory(graph.edges, pairs, FitPlan.of_paper()) == 10 * considered.sum()
    outline = divide(graph)[0]
    plain, more = (Division.of(plan, outline, known=known).worker_memory for known in (0, 10**6))
    assert more - plain >= 4e6


# --- Never recommended ---


@pytest.fixture(scope="module")
def fitted() -> tuple[Recommender, np.ndarray, np.ndarray]:
    likes, considered, impossible = world()
    likes[USERS - 1] = False  # someone who liked nothing
    model = small().fit(matrix(likes), considered=matrix(considered), impossible=matrix(impossible))
    return model, likes, impossible & ~likes


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"score": "popularity_x_like"},
        {"explore_kappa": 1.0},
        {"diversity": 0.5},
        {"filter_already_liked_items": False},
    ],
)
def test_what_is_impossible_is_not_recommended_unless_asked_for(fitted, options):
    model, likes, impossible = fitted
    closed = impossible | (likes & options.get("filter_already_liked_items", True))
    for user in range(0, USERS, 7):
        ids, _ = model.recommend(user, N=ITEMS, **options)
        assert set(ids) == set(np.flatnonzero(~closed[user]))
        ids, _ = model.recommend(user, N=ITEMS, allow_impossible=True, **options)
        assert len(ids) == (~(closed & ~impossible)[user]).sum()


def test_nor_to_someone_who_liked_nothing(fitted):
    model, _, impossible = fitted
    row = model.recommend_table([USERS - 1], ITEMS, cold="popular")
    assert set(row["item"].to_pylist()) == set(np.flatnonzero(~impossible[USERS - 1]))
    stranger = model.recommend_table(["someone"], ITEMS, cold="popular")
    assert len(stranger) == ITEMS


@pytest.mark.parametrize("shards", [None, 3])
@pytest.mark.parametrize("rule", [False, True])
def test_a_model_file_has_what_is_impossible(tmp_path, shards, rule):
    likes, considered, impossible = world()
    given = rules()[0] if rule else table(impossible)
    model = small().fit(table(likes), considered=table(considered), impossible=given)
    path = tmp_path / "model.safetensors"
    model.save(path, shards=shards)
    for verify in (None, True):
        again = Recommender.load(path, verify=verify)
        assert again.recommend_table(None, 20) == model.recommend_table(None, 20)
        assert len(again.recommend_table(None, ITEMS)) < len(again.recommend_table(None, ITEMS, allow_impossible=True))


def test_a_file_whose_rules_name_what_is_not_there_is_refused(tmp_path, monkeypatch):
    from considerate.inference.hidden import limits as known_part
    from considerate.model import file

    likes, _, impossible = world()
    model, path = small(sweeps=1).fit(matrix(likes), impossible=matrix(impossible)), tmp_path / "model.safetensors"
    right = known_part.limit_tensors
    wrong = {"impossible.items": lambda array: array + ITEMS, "impossible.starts": lambda array: array[:-1]}
    for name, change in wrong.items():
        damaged = right(model.model_.limits)
        damaged[name] = change(damaged[name])
        with monkeypatch.context() as patch:
            patch.setattr(known_part, "limit_tensors", lambda _, damaged=damaged: damaged)
            patch.setattr(file, "check_of", lambda *_: None)  # else it is not written at all
            model.save(path)
        with pytest.raises(ModelFileError, match="impossible pairs"):
            load_model(path)


def test_users_and_items_that_are_added_keep_the_others_limits(fitted):
    model, _, impossible = fitted
    again = Recommender.load(saved(model))
    again.partial_fit_users([USERS], [[1, 2]])
    again.partial_fit_items([ITEMS], [[0, 1]])
    for user in (0, 7):
        ids, _ = again.recommend(user, N=ITEMS + 4)
        assert not set(ids) & set(np.flatnonzero(impossible[user]))
    ids, _ = again.recommend(USERS, N=ITEMS + 4)
    assert len(ids) == again.model_.item_count - 2


def saved(model: Recommender) -> Path:
    import tempfile

    path = Path(tempfile.mkdtemp()) / "model.safetensors"
    model.save(path)
    return path


# --- New users ---


def test_a_new_user_is_folded_in_with_what_they_considered(fitted):
    model, _, _ = fitted
    likes, shown = [0, 2], [4, 6, 8]
    plain, known_ = model.fold_in([likes]), model.fold_in([likes], considered=[shown])
    items = model.model_.items
    before, after = (side.mean @ items.mean[shown].T for side in (plain, known_))
    assert (after < before).all()
    table_ = model.recommend_for(likes, ITEMS, considered=shown)
    assert table_["item"].to_pylist() != model.recommend_for(likes, ITEMS)["item"].to_pylist()
    assert model.recommend_for(likes, ITEMS, considered=[0, *shown]) == table_  # a like is a like
    with pytest.raises(UsageError, match="rows of considered"):
        model.fold_in([likes, likes], considered=[shown])


def test_where_all_is_given_a_new_users_pairs_are_all():
    likes, considered, _ = world()
    model = small(considered_are="sample").fit(matrix(likes), considered=matrix(considered))
    sides = [model.fold_in([[0, 2]], considered=[shown]) for shown in ([1, 3], [1, 3, 5])]
    assert not np.array_equal(sides[0].mean, sides[1].mean)
    u = model.fold_in([np.flatnonzero(likes[4]).tolist()], considered=[np.flatnonzero(considered[4]).tolist()])
    found = model.posterior_.users.mean[4]
    assert np.corrcoef(u.mean[0], found)[0, 1] > 0.95


# --- The truth ---


def test_what_is_shown_of_h_brings_the_truth_nearer(capsys):
    """Data of the model where people consider a little of the catalogue: the worst case of drawn edges."""
    sample = simulate_from_model(1200, 150, 3, tau_item_bias=2.0, seed=3)
    likes = sp.csr_matrix((np.ones(len(sample.users), np.float32), (sample.users, sample.items)), shape=(1200, 150))
    unliked = ~sample.liked
    random = np.random.default_rng(0)
    errors = {}
    for share, settings in ((0.0, {}), (0.5, {}), (1.0, {}), (1.0, {"considered_are": "all"})):
        shown = unliked & (random.random(len(unliked)) < share)
        pairs = sample.hidden_users[shown], sample.hidden_items[shown]
        considered = sp.csr_matrix((np.ones(shown.sum(), np.float32), pairs), shape=(1200, 150)) if share else None
        model = Recommender(factors=3, negatives=1.0, likelihood_weight=1.0, **settings).fit(
            likes, considered=considered
        )
        at = sample.hidden_users, sample.hidden_items
        mean, deviation = model.predict_logit(*at)
        found = recovery(sample.logit, sample.liked, mean, deviation, model.predict_proba(*at))
        errors[share, bool(settings)] = found
    with capsys.disabled():
        print()
        for (share, whole), found in errors.items():
            print(
                f"H shown {share:.0%}{', all' * whole}: calibration error {found.calibration_error:.3f}, "
                f"RMSE {found.rmse:.2f} of {found.spread:.2f}, correlation {found.correlation:.3f}"
            )
    by_share = [errors[share, False] for share in (0.0, 0.5, 1.0)]
    assert np.all(np.diff([found.rmse for found in by_share]) < 0)
    assert np.all(np.diff([found.correlation for found in by_share]) > 0)
    assert errors[1.0, True].calibration_error < 0.02 < by_share[0].calibration_error
    assert errors[1.0, True].rmse < 0.7 * by_share[0].rmse


# --- The shell ---


def test_the_shell_takes_them_too(tmp_path):
    likes, considered, impossible = world()
    pq.write_table(events(), tmp_path / "events.parquet")
    pq.write_table(pa.table(table(impossible)), tmp_path / "impossible.parquet")
    path = tmp_path / "model.safetensors"
    rules = "--where", "event = 'buy'", "--considered-where", "event = 'view'"
    settings = "--factors", 4, "--sweeps", 8, "--tolerance", 0, "--threads", 1, "--seed", 2
    done = run(
        "fit",
        tmp_path / "events.parquet",
        *rules,
        "--impossible",
        tmp_path / "impossible.parquet",
        *settings,
        "-o",
        path,
    )
    assert done.exit_code == 0, done.output
    model = small().fit(table(likes), considered=table(considered), impossible=table(impossible))
    np.testing.assert_array_equal(Recommender.load(path).item_factors, model.item_factors)
    shown = json.loads(run("recommend", path, "u00", "-n", ITEMS, "--json").stdout)
    assert {row["item"] for row in shown} == {f"i{n:02}" for n in np.flatnonzero(~(likes | impossible)[0])}
    more = json.loads(run("recommend", path, "u00", "-n", ITEMS, "--json", "--allow-impossible").stdout)
    assert len(more) == (~likes[0]).sum()
    new = run("recommend", path, "--items", "i00", "--considered", "i02", "--considered", "i04", "--json", "-n", 5)
    wanted = model.recommend_for(["i00"], 5, considered=["i02", "i04"]).to_pylist()
    assert [row["item"] for row in json.loads(new.stdout)] == [row["item"] for row in wanted]
    refused = run("fit", tmp_path / "events.parquet", *rules, "--user-groups", tmp_path / "x.csv", "-o", path)
    assert refused.exit_code == 2
    assert "go together" in refused.output


def test_evaluate_gives_them_to_the_fits_but_no_like_that_is_held_out(tmp_path, monkeypatch):
    """The views of bought items are no considered pairs of a fit that must not know that they are bought."""
    given: list[Any] = []
    fit = Recommender.fit

    def noted(self: Recommender, likes: Any, **beside: Any) -> Recommender:
        given.append((likes, beside.get("considered"), beside.get("impossible")))
        return fit(self, likes, **beside)

    monkeypatch.setattr(Recommender, "fit", noted)
    likes, considered, impossible = world()
    rules = {"where": "event = 'buy'", "considered_where": "event = 'view'"}
    beside = {"impossible": table(impossible), **rules}
    considerate.evaluate(small(sweeps=2), events(), "random", resamples=5, **beside)
    train, pairs, closed = given[0]
    assert len(train.users) == likes.sum() - USERS
    assert pairs.digest() == read_pairs(table(considered), ReaderOptions()).digest()
    assert closed is not None
    with pytest.raises(UsageError, match="fitted here"):
        considerate.evaluate("popularity", events(), "random", where="event = 'buy'", impossible=table(impossible))
    pq.write_table(events(), tmp_path / "events.parquet")
    arguments = "evaluate", "considerate", tmp_path / "events.parquet", "--where", "event = 'buy'", "--resamples", 5
    done = run(*arguments, "--considered-where", "event = 'view'", "--json")
    assert done.exit_code == 0, done.output
    assert given[-1][1].digest() == pairs.digest()
    path = saved(small(sweeps=1).fit(table(likes)))
    refused = run("evaluate", path, *arguments[2:], "--considered-where", "event = 'view'")
    assert refused.exit_code == 2
    assert "--refit" in refused.output


def test_a_study_gives_them_to_our_fits_and_does_not_judge_them():
    likes, considered, _ = world()
    rated = pa.concat_tables(
        [
            pa.table(table(pairs, rating=rating))
            for pairs, rating in ((likes, 5), (considered, 1), (world(1)[1] & ~likes & ~considered, 3))
        ]
    )
    plain, given = (
        read_material(rated, ReaderOptions(where="rating >= 4", considered_where=rule))
        for rule in (None, "rating <= 2")
    )
    assert plain.considered is None
    assert plain.fingerprint() != given.fingerprint()
    np.testing.assert_array_equal(given.considered.toarray() > 0, considered)
    assert len(given.judged.users) == len(plain.judged.users) - considered.sum()
    settings = {"factors": 4, "sweeps": 3, "tolerance": 0.0}
    fits = [
        fit_ours(material.graph, settings, Compute(2, 1, run_serially, material.considered))[0].items.rows
        for material in (plain, given)
    ]
    assert not np.array_equal(*fits)
    wanted = Recommender(**settings, seed=2, popularity=0.0, threads=1).fit(matrix(likes), considered=given.considered)
    np.testing.assert_array_equal(fits[1], wanted.posterior_.items.rows)


def test_the_shell_refuses_considered_items_without_a_new_user(tmp_path):
    path = saved(small(sweeps=1).fit(table(world()[0])))
    done = run("recommend", path, "u00", "--considered", "i02")
    assert done.exit_code == 2
    assert "--items" in done.output


def test_digests_tell_tables_apart():
    _, considered, impossible = world()
    one = read_impossible(table(impossible), ReaderOptions())
    assert one.digest() == read_impossible(Impossible(table(impossible)), ReaderOptions()).digest()
    assert one.digest() != read_impossible(table(considered), ReaderOptions()).digest()
    assert one.digest() != read_impossible(rules()[0], ReaderOptions()).digest()


def test_edges_without_others():
    one, two = (Adjacency.of_rows([np.array(row, np.int32) for row in rows]) for rows in ([[0, 3], [1]], [[3], []]))
    found = one.without(two, 5)
    assert found.indices.tolist() == [0, 1]
    assert found.degrees.tolist() == [1, 1]


@pytest.mark.parametrize("empty", ["available", "active"])
def test_a_table_of_times_without_rows_is_refused(empty: str) -> None:
    dated = {"from": ["2020-01-01"], "until": ["2021-01-01"]}
    tables: dict[str, Any] = {"available": {"item": [1]} | dated, "active": {"user": [1]} | dated}
    tables[empty] = {column: [] for column in tables[empty]}
    with pytest.raises(DataError, match="no rows; expected the times of at least one"):
        Recommender(sweeps=1).fit({"user": [1, 2], "item": [1, 2]}, impossible=Impossible(**tables))
