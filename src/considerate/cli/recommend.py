"""considerate recommend"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any

import typer

from considerate.cli import screen
from considerate.cli.options import (
    Backend,
    Cluster,
    Interval,
    ModelOutput,
    ModelPath,
    OptionGroup,
    RankingGroup,
    expand_groups,
    option,
    read_ids,
)
from considerate.errors import UsageError

if TYPE_CHECKING:
    from considerate.model.ranking import RankingOptions
    from considerate.model.tables import Recommendations
    from considerate.recommender import Recommender

Cold = StrEnum("Cold", ["error", "popular"])


class Recipients(OptionGroup, panel="For whom"):
    items: list[str] | None = option(
        "Fold in a new user who likes this item, by id or title; repeat it, or @FILE.", None
    )
    considered: list[str] | None = option(
        "With --items: the new user considered this item and did not like it, by id or title; repeat it, or @FILE.",
        None,
    )
    all_users: bool = option("Everyone in the model; needs --output.", False)
    cold: Cold = option(
        "What a user gets who is unknown or liked nothing: an error, or popular items marked as such.", Cold.error
    )


class RecommendGroup(RankingGroup, panel="What is recommended"):
    count: int = option("How many items for each user.", 10, "--count", "-n")
    allow: list[str] | None = option("Recommend only this item, id or title; repeat it, or @FILE.", None)
    deny: list[str] | None = option("Never recommend this item, id or title; repeat it, or @FILE.", None)
    include_liked: bool = option("Also what the user liked in training.", False)
    allow_impossible: bool = option("Also what the fit was told to be impossible for the user.", False)
    explore_kappa: float = option("Add so many standard deviations of the logit.", 0.0)
    thompson_seed: int | None = option("Draw the logits, with this seed.", None)
    index: str | None = option(
        "Look for items in this index, which `considerate index` made of the model: for few users and many items. "
        "Some that belong in the list may be missed.",
        None,
    )
    diversity: float = option(
        "From 0, the best by their scores, to 1: choose items unlike each other from the best few hundred.", 0.0
    )
    categories: str | None = option(
        "A file with a column of items and one of their categories, such as genres; with --most-per-category.", None
    )
    most_per_category: int | None = option("At most so many items of one category in a list.", None)
    interval: Interval = option(
        "Kind of 90 % interval: structural has how far true values lie from the model's; posterior, as in the paper, "
        "has the uncertainty of the vectors alone.",
        Interval.structural,
    )
    probes: int = option("Lists of the index to look into; more of them miss less.", 32)


class RecommendOutput(ModelOutput):
    explain: bool = option(
        "Show which of the user's items made each likely to be liked (its logit), and to be considered (its share).",
        False,
    )
    output: str | None = option(
        "Write to this .parquet or .csv file; with --all-users also to a folder of Parquet files, named with a / at "
        "its end or by an address such as s3://bucket/name.",
        None,
        "--output",
        "-o",
    )
    export_vectors: str | None = option(
        "Instead of recommending, write the vectors of all users and items to this .parquet file, bias and knob as "
        "extra coordinates, for a vector store. Their inner product is the score without lift.",
        None,
    )


class BatchCluster(Cluster):
    workers: int | None = option(
        "How many: threads here, processes of Ray; as many as there are processors or machines if not given.", None
    )


@expand_groups
def recommend(
    model: ModelPath,
    whom: Recipients,
    wanted: RecommendGroup,
    output: RecommendOutput,
    where: BatchCluster,
    users: Annotated[
        list[str] | None, typer.Argument(help="Ids of users, as in the data, or @FILE with one a line.")
    ] = None,
) -> None:
    """Recommend items with p(like), its 90 % interval, and the chance that they are considered.

    For users by their ids, for a new user by the items that they like, or for everyone into a file or, many slices of
    users at once, into a folder.
    """
    given = [
        value for values in (users, whom.items, whom.considered, wanted.allow, wanted.deny) for value in values or []
    ]
    _check_files(model, given, wanted, output)
    names, new_user, path = read_ids(users), read_ids(whom.items), output.output
    if output.export_vectors is not None:
        if names or new_user or whom.all_users:
            raise UsageError("--export-vectors is for all users and items; leave out users, --items and --all-users.")
        _export(model, output.export_vectors, wanted, output)
        return
    if (names is not None) + (new_user is not None) + whom.all_users != 1:
        raise UsageError("say for whom: give ids of users, or --items for a new user, or --all-users with -o FILE.")
    into_folder = whom.all_users and path is not None and (path.endswith("/") or "://" in path)
    _check_output(whom, output, where, into_folder)
    from considerate.model.find import item_called
    from considerate.recommender import Recommender

    recommender = Recommender.load(model, verify=output.verify or None)
    if not recommender.model_.users.knows_likes and not wanted.include_liked and new_user is None:
        screen.say("warning", f"{model} was saved without likes, so what a user liked is not left out.")
    likes, shown, allowed, denied = (
        None if texts is None else [item_called(recommender.model_, text) for text in texts]
        for texts in (new_user, read_ids(whom.considered), read_ids(wanted.allow), read_ids(wanted.deny))
    )
    if shown and likes is None:
        raise UsageError("--considered is of a new user; give what they like with --items.")
    options = _ranking(recommender, whom, wanted, allowed, denied)
    found = None
    if likes is not None:
        found = recommender.recommend_for(likes, wanted.count, considered=shown or (), options=options)
    if path is not None:
        if into_folder:
            count = _write_folder(recommender, model, wanted.count, options, path, where, output.quiet)
        else:
            count = _write_file(recommender, names, found, wanted.count, options, path, output.quiet)
        output.report({"path": path, "rows": count}, f"{count:,} recommendations written to {path}")
        return
    if found is not None:
        answers = [("the new user", found.to_pylist())]
    else:
        answers = [
            (f"user {name}", recommender.recommend_table([name], wanted.count, options=options).to_pylist())
            for name in names or []
        ]
    if output.explain:
        for _, rows in answers:
            _explain(recommender, rows, likes)
    if output.json:
        screen.print_json([row for _, rows in answers for row in rows])
        return
    for title, rows in answers:
        _show(title, rows)


def _check_files(model: str, given: list[str], wanted: RecommendGroup, output: RecommendOutput) -> None:
    """Refuse to write over a file that is read."""
    from considerate.data.output import check_apart

    for written in (output.output, output.export_vectors):
        if written is not None:
            check_apart(written, model, wanted.categories, *(value[1:] for value in given if value.startswith("@")))


def _check_output(whom: Recipients, output: RecommendOutput, where: BatchCluster, into_folder: bool) -> None:
    """Refuse options that do not go with the output."""
    if whom.all_users and output.output is None:
        raise UsageError("--all-users writes a file; name it with -o recommendations.parquet.")
    if output.output is not None and output.explain:
        raise UsageError("--explain is for the screen and --json; leave it out with -o.")
    if not into_folder and where != BatchCluster():
        raise UsageError("--backend ray, --address and --workers are for --all-users into a folder: -o FOLDER/.")


def _ranking(
    recommender: Recommender, whom: Recipients, wanted: RecommendGroup, allow: Any, deny: Any
) -> RankingOptions:
    """Options of Python from those of the shell."""
    from considerate.model.ranking import RankingOptions

    return RankingOptions(
        popularity=wanted.popularity,
        lift=wanted.lift,
        score=None if wanted.score is None else wanted.score.value,
        cold=whom.cold.value,
        filter_already_liked_items=not wanted.include_liked,
        allow_impossible=wanted.allow_impossible,
        allow=allow,
        deny=deny,
        explore_kappa=wanted.explore_kappa,
        thompson_seed=wanted.thompson_seed,
        diversity=wanted.diversity,
        categories=wanted.categories,
        most_per_category=wanted.most_per_category,
        interval=wanted.interval.value,
        index=None if wanted.index is None else recommender.load_index(wanted.index, wanted.probes),
    )


def _export(model: str, path: str, wanted: RecommendGroup, output: ModelOutput) -> None:
    """Write the vectors of all users and items into a file."""
    if wanted.lift:
        raise UsageError(
            f"--lift is {wanted.lift:g}, and no inner product of two vectors holds lift; leave it out, and "
            "rank what the vectors retrieve with it: considerate recommend MODEL USER --allow @RETRIEVED --lift X."
        )
    from considerate.data.output import check_output_file, write_vectors
    from considerate.model.serving import item_vectors, user_vectors
    from considerate.recommender import Recommender

    check_output_file(path, (".parquet",))
    fitted = Recommender.load(model, verify=output.verify or None).model_
    of_items = item_vectors(fitted, wanted.popularity)
    of_users = (("user", piece.ids, user_vectors(piece.side)) for _, piece in fitted.users.pieces())
    users, items, coordinates = fitted.user_count, fitted.item_count, int(of_items.shape[1])
    write_vectors(path, coordinates, chain(of_users, [("item", fitted.item_ids, of_items)]))
    output.report(
        {"path": path, "users": users, "items": items, "coordinates": coordinates},
        f"{users:,} users and {items:,} items of {coordinates} coordinates written to {path}",
    )


def _write_folder(
    recommender: Recommender,
    model: str,
    count: int,
    options: RankingOptions,
    folder: str,
    where: BatchCluster,
    quiet: bool,
) -> int:
    """Write recommendations for all users, many slices at once; returns the rows written."""
    from considerate.distributed.batch import check_output, recommend_all
    from considerate.model.serving import Ranker

    check_output(folder)
    Ranker(recommender.model_, options, count)  # refuses wrong options before a Ray starts
    with _tasks(where) as tasks, _bar(recommender.model_.user_count, quiet) as advance:
        return recommend_all(model, folder, tasks, count, options, progress=advance)


@contextmanager
def _tasks(where: BatchCluster) -> Iterator[Any]:
    if where.workers is not None and where.workers < 1:
        raise UsageError(f"--workers is {where.workers}; it must be at least 1.")
    if where.backend is Backend.ray:
        from considerate.distributed import RayBackend

        with RayBackend(address=where.address, workers=where.workers).open() as session:
            yield session.tasks
        return
    if where.address is not None:
        raise UsageError("--address is for --backend ray.")
    from considerate.distributed.tasks import LocalTasks

    with LocalTasks(where.workers) as tasks:
        yield tasks


def _write_file(
    recommender: Recommender,
    names: list[str] | None,
    found: Recommendations | None,
    count: int,
    options: RankingOptions,
    path: str,
    quiet: bool,
) -> int:
    """Write recommendations into a file, some users at a time, or those of a new user; returns the rows written."""
    from considerate.data.output import check_output_file, write_batches
    from considerate.distributed.batch import BATCH
    from considerate.model.tables import RecommendationTable

    check_output_file(path)
    schema = RecommendationTable(recommender.model_, names or ()).schema
    if found is not None:
        batches = iter(found.to_arrow().to_batches())
    else:
        batches = recommender.recommend_batches(names, count, options=options, batch=BATCH)
    with _bar(recommender.model_.user_count if names is None else len(names), quiet) as advance:

        def watched() -> Iterator[Any]:
            for batch in batches:
                yield batch
                advance(len(batch["user"].unique()))

        return write_batches(path, schema, watched())


@contextmanager
def _bar(users: int, quiet: bool) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on a terminal; yields a function that takes the number of users done since."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = screen.stderr()
    columns = (TextColumn("{task.completed:,.0f}/{task.total:,.0f} users"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=quiet or not console.is_terminal) as bar:
        task = bar.add_task("users", total=users)
        yield lambda done: bar.advance(task, done)
        bar.update(task, completed=users)


def _explain(recommender: Recommender, rows: list[dict[str, Any]], likes: list[int | str] | None) -> None:
    """Add to each row the three liked items that moved its logit most, and the three that lead to it most."""
    if likes is None and not recommender.model_.users.knows_likes:
        raise UsageError("this model was saved without likes (--no-likes), and cannot explain by them.")
    for row in rows:
        row |= {"because": [], "considered_because": [], "by_popularity": 1.0}
        if row["cold"]:
            continue
        row |= recommender.explain(row["user"], row["item"], likes, N=3).to_dict(recommender.model_)


def _show(title: str, rows: list[dict[str, Any]]) -> None:
    """Print one user's recommendations as a table."""
    from considerate.model.columns import COLUMNS

    if not rows:
        screen.show(screen.styled((title, "bold"), ": no item is left to recommend."))
        return
    explained = "because" in rows[0]
    columns = {}
    for column in COLUMNS:
        if column.heading and (column.name in rows[0] or (explained and column.name == "title")):
            reasons = ", because of" if explained and column.name == "title" else ""
            columns[(">" if column.is_number else "") + column.heading + reasons] = column.cell
    captions = ["nothing is known of this user: popular items"] if rows[0]["cold"] else []
    if explained:
        captions.append("+0.10: of the logit of p(like). 10%: of the chance to consider the item.")
    texts = ({column.name: column.text(row.get(column.name)) for column in COLUMNS} | _title(row) for row in rows)
    screen.show_table(columns, texts, title, "\n".join(captions) or None)


def _title(row: dict[str, Any]) -> dict[str, str]:
    """The title of a row, with its reasons below if it is explained."""
    lines = [row["title"]] if row.get("title") else []
    lines += [f"{liked['logit']:+.2f} {liked['title']}" for liked in row.get("because", [])]
    lines += [f"{reason['logit']:+.2f} {reason['feature']}" for reason in row.get("because_of", [])]
    lines += [
        f"{reason['logit']:+.2f} {reason['number']}, by judged pairs" for reason in row.get("recalibrated_by", [])
    ]
    lines += [f"{liked['share']:.0%} {liked['title']}" for liked in row.get("considered_because", [])]
    lines += [f"{row['by_popularity']:.0%} popularity"] if "by_popularity" in row else []
    return {"title": "\n".join(lines)}
