"""considerate recommend"""

from __future__ import annotations

from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any

import typer

from considerate.cli import screen
from considerate.cli.options import (
    OUTPUT_PANEL,
    Address,
    Backend,
    BackendName,
    Cold,
    Json,
    Quiet,
    Score,
    Workers,
    check_inputs_kept,
    given_ids,
    id_files,
    score_option,
)
from considerate.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from considerate.model.ranking import RankingOptions
    from considerate.recommender import Recommender

WHO, WHAT = "For whom", "What is recommended"


def recommend(
    model: Annotated[str, typer.Argument(help="The model file, or the folder of a model in shards.")],
    users: Annotated[
        list[str] | None, typer.Argument(help="Ids of users, as in the data, or @FILE with one a line.")
    ] = None,
    items: Annotated[
        list[str] | None,
        typer.Option(
            "--items", help="Fold in a new user who likes this item; repeat it, or @FILE.", rich_help_panel=WHO
        ),
    ] = None,
    all_users: Annotated[
        bool, typer.Option("--all-users", help="Everyone in the model; needs --output.", rich_help_panel=WHO)
    ] = False,
    cold: Annotated[
        Cold,
        typer.Option(
            help="What a user gets who is unknown or liked nothing: an error, or popular items marked as such.",
            rich_help_panel=WHO,
        ),
    ] = Cold.error,
    count: Annotated[
        int, typer.Option("--count", "-n", help="How many items for each user.", rich_help_panel=WHAT)
    ] = 10,
    popularity: Annotated[
        float | None,
        typer.Option(
            help="The knob: 0 ranks by liking alone, 1 by the odds of a like being observed; the model's own, "
            "0.5 as a rule, if not given.",
            show_default=False,
            rich_help_panel=WHAT,
        ),
    ] = None,
    score: Annotated[Score | None, score_option(WHAT)] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(help="Recommend only this item; repeat it, or @FILE.", rich_help_panel=WHAT),
    ] = None,
    deny: Annotated[
        list[str] | None,
        typer.Option(help="Never recommend this item; repeat it, or @FILE.", rich_help_panel=WHAT),
    ] = None,
    include_liked: Annotated[
        bool, typer.Option("--include-liked", help="Also what the user liked in training.", rich_help_panel=WHAT)
    ] = False,
    explore_kappa: Annotated[
        float, typer.Option(help="Add so many standard deviations of the logit.", rich_help_panel=WHAT)
    ] = 0.0,
    thompson_seed: Annotated[
        int | None,
        typer.Option(help="Draw the logits, with this seed.", show_default=False, rich_help_panel=WHAT),
    ] = None,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain", help="Show which of the user's items moved each logit most.", rich_help_panel=OUTPUT_PANEL
        ),
    ] = False,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            help="Write to this .parquet or .csv file; with --all-users also to a folder of Parquet files, named with "
            "a / at its end or by an address such as s3://bucket/name.",
            rich_help_panel=OUTPUT_PANEL,
        ),
    ] = None,
    export_vectors: Annotated[
        str | None,
        typer.Option(
            help="Instead of recommending, write the vectors of all users and items to this .parquet file, bias and "
            "knob as extra coordinates, for a vector store.",
            rich_help_panel=OUTPUT_PANEL,
        ),
    ] = None,
    backend: Backend = BackendName.local,
    address: Address = None,
    workers: Workers = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Recommend items with p(like) and its 90 % interval.

    For users by their ids, for a new user by the items that they like, or for everyone into a file or, many slices of
    users at once, into a folder.
    """
    for path in (output, export_vectors):
        if path is not None:
            check_inputs_kept(path, model, *id_files(users, items, allow, deny))
    names, likes = given_ids(users), given_ids(items)
    if export_vectors is not None:
        _export(model, export_vectors, popularity, names or likes or all_users, quiet, json)
        return
    _check(names, likes, all_users, output, explain)
    job = all_users and output is not None and (output.endswith("/") or "://" in output)
    if not job and (backend is BackendName.ray or address is not None or workers is not None):
        raise UsageError("--backend ray, --address and --workers are for --all-users into a folder: -o FOLDER/.")
    from considerate.distributed.batch import check_output, recommend_all
    from considerate.model.ranking import RankingOptions
    from considerate.model.serving import Ranker
    from considerate.recommender import Recommender

    recommender = Recommender.load(model)
    if not recommender.model_.knows_likes and not include_liked and likes is None:
        screen.say("warning", f"{model} was saved without likes, so what a user liked is not left out.")
    options = RankingOptions(
        popularity,
        None if score is None else score.value,
        cold.value,
        not include_liked,
        given_ids(allow),
        given_ids(deny),
        explore_kappa,
        thompson_seed,
    )
    if job and output is not None:
        check_output(output)
        Ranker(recommender.model_, options, count)  # what is wrong with it is said before a Ray is started
        with _tasks(backend, address, workers) as tasks, _bar(recommender.model_.user_count, quiet) as advance:
            rows = recommend_all(model, output, tasks, count, options, progress=advance)
        _say_written(rows, output, quiet, json)
        return
    if output is not None:
        _write(recommender, names, likes, count, options, output, quiet, json)
        return
    if likes is not None:
        answers = [("the new user", recommender.recommend_for(likes, count, options=options).to_pylist())]
    else:
        answers = [
            (f"user {name}", recommender.recommend_table([name], count, options=options).to_pylist())
            for name in names or []
        ]
    if explain:
        for _, rows in answers:
            _explain(recommender, rows, likes)
    if json:
        screen.print_json([row for _, rows in answers for row in rows])
        return
    for title, rows in answers:
        _show(title, rows)


def _check(names: list[str] | None, likes: list[str] | None, everyone: bool, output: str | None, explain: bool) -> None:
    if (names is not None) + (likes is not None) + everyone != 1:
        raise UsageError("say for whom: give ids of users, or --items for a new user, or --all-users with -o FILE.")
    if everyone and output is None:
        raise UsageError("--all-users writes a file; name it with -o recommendations.parquet.")
    if output is not None and explain:
        raise UsageError("--explain is for the screen and --json; leave it out with -o.")


def _export(model: str, path: str, popularity: float | None, users: object, quiet: bool, json: bool) -> None:
    if users:
        raise UsageError("--export-vectors is for all users and items; leave out users, --items and --all-users.")
    from considerate.data.output import check_ending, write_vectors
    from considerate.model.serving import item_vectors, user_vectors
    from considerate.recommender import Recommender
    from considerate.storage.files import check_writable

    check_ending(path, (".parquet",))
    check_writable(path)
    fitted = Recommender.load(model).model_
    of_items = item_vectors(fitted, popularity)
    of_users = (("user", piece.ids, user_vectors(piece.side)) for _, piece in fitted.users.pieces())
    write_vectors(path, chain(of_users, [("item", fitted.item_ids, of_items)]))
    said = {
        "path": path,
        "users": fitted.user_count,
        "items": fitted.item_count,
        "coordinates": int(of_items.shape[1]),
    }
    if json:
        screen.print_json(said)
    elif not quiet:
        counted = f"{said['users']:,} users and {said['items']:,} items of {said['coordinates']} coordinates"
        screen.stdout().print(f"{counted} written to {path}", soft_wrap=True)


def _write(
    recommender: Recommender,
    names: list[str] | None,
    likes: list[str] | None,
    count: int,
    options: RankingOptions,
    output: str,
    quiet: bool,
    json: bool,
) -> None:
    """Recommendations into a file, some users at a time."""
    from considerate.data.output import check_ending, write_batches
    from considerate.distributed.batch import BATCH
    from considerate.model.tables import RecommendationTable
    from considerate.storage.files import check_writable

    check_ending(output)
    check_writable(output)
    schema = RecommendationTable(recommender.model_, names or ()).schema
    if likes is not None:
        batches = iter(recommender.recommend_for(likes, count, options=options).to_batches())
        total = 1
    else:
        batches = recommender.recommend_batches(names, count, options=options, batch=BATCH)
        total = recommender.model_.user_count if names is None else len(names)
    with _bar(total, quiet) as advance:

        def watched() -> Any:
            for batch in batches:
                yield batch
                advance(BATCH)

        rows = write_batches(output, schema, watched())
    _say_written(rows, output, quiet, json)


@contextmanager
def _tasks(backend: BackendName, address: str | None, workers: int | None) -> Iterator[Any]:
    if workers is not None and workers < 1:
        raise UsageError(f"--workers is {workers}; it must be at least 1.")
    if backend is BackendName.ray:
        from considerate.distributed.backends.ray import RayBackend

        with RayBackend(address=address, workers=workers).open() as opened:
            yield opened.tasks
        return
    if address is not None:
        raise UsageError("--address is for --backend ray.")
    from considerate.distributed.tasks import LocalTasks

    with LocalTasks(workers) as tasks:
        yield tasks


@contextmanager
def _bar(users: int, quiet: bool) -> Iterator[Callable[[int], None]]:
    """A progress bar on a terminal; what it gives is called with the number of users done since."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = screen.stderr()
    columns = (TextColumn("{task.completed:,.0f}/{task.total:,.0f} users"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=quiet or not console.is_terminal) as bar:
        task = bar.add_task("users", total=users)
        yield lambda done: bar.advance(task, done)
        bar.update(task, completed=users)


def _say_written(rows: int, output: str, quiet: bool, json: bool) -> None:
    if json:
        screen.print_json({"path": output, "rows": rows})
    elif not quiet:
        screen.stdout().print(f"{rows:,} recommendations written to {output}", soft_wrap=True)


def _explain(recommender: Recommender, rows: list[dict[str, Any]], likes: list[str] | None) -> None:
    """To each row, the three liked items that moved its logit most."""
    model = recommender.model_
    if likes is None and not model.knows_likes:
        raise UsageError("this model was saved without likes (--no-likes), and cannot explain by them.")
    given = None if likes is None else recommender.item_rows(likes)
    for row in rows:
        row["because"] = []
        if row["cold"]:
            continue
        user = -1 if given is not None else model.user_ids.row_of(row["user"])
        _, moved = recommender.explain(user, model.item_ids.row_of(row["item"]), given, N=3)
        row["because"] = [
            {"item": model.item_ids.id_of(item), "title": model.title(item), "logit": share} for item, share in moved
        ]


def _show(title: str, rows: list[dict[str, Any]]) -> None:
    """One user's recommendations as a table."""
    console = screen.stdout()
    if not rows:
        console.print(f"[bold]{_plain(title)}[/]: no item is left to recommend.")
        return
    titled, explained = "title" in rows[0], "because" in rows[0]
    cold = rows[0]["cold"]
    columns = ["#", "item", *(["title"] if titled else []), "p(like)", "90 % interval", "score"]
    if explained:
        columns.append("because of (logit)")
    made = screen.table(*columns, right=("#", "p(like)", "90 % interval", "score"), title=_plain(title))
    if cold:
        made.caption, made.caption_justify = "nothing is known of this user: popular items", "left"
    for row in rows:
        cells = [str(row["rank"]), _plain(row["item"])]
        if titled:
            cells.append(_plain(row["title"] or ""))
        cells += [f"{row['p_like']:.2f}", f"{row['low']:.2f} – {row['high']:.2f}", f"{row['score']:.3f}"]
        if explained:
            cells.append("\n".join(f"{_plain(one['title'])} ({one['logit']:+.2f})" for one in row["because"]))
        made.add_row(*cells)
    console.print(made)


def _plain(text: Any) -> str:
    from rich.markup import escape

    return escape(str(text))
