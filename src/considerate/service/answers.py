"""Answers other than one user's list: searches, items, reasons, landscapes and batches. They run in threads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple
from datetime import UTC, datetime
from typing import Any

import msgspec
import numpy as np
from msgspec import UNSET

from considerate._version import __version__
from considerate.data.vocabulary import Id, integer_id
from considerate.errors import UsageError
from considerate.model.considered import consideration_weights
from considerate.model.explain import explain_item, similar_items
from considerate.model.find import matching_rows
from considerate.model.pairs import Pairs
from considerate.model.predict import logit_moments
from considerate.model.serving import Ranker
from considerate.model.tables import RecommendationTable
from considerate.service import schemas
from considerate.service.events import EventStore
from considerate.service.landscape import reachable
from considerate.service.problems import Problem
from considerate.service.scoring import ListAnswer, Person, Question, Scoring, check_explains, user_batch
from considerate.service.state import ServedModel
from considerate.service.threads import Pause

MOST_COST = 200_000  # of a batch: that of so many items without reasons
WHY_COST = 50  # of an item with its reasons
STEP_USERS = 48  # of a batch between two pauses


def search(served: ServedModel, query: schemas.SearchQuery) -> schemas.ItemsAnswer:
    """Items by their titles; without a text, the most liked."""
    degree = served.model.item_degree
    if query.q.strip():
        rows = [row for _, row in matching_rows(served.model, query.q)[: query.n]]
    else:
        rows = np.argsort(-degree, kind="stable")[: query.n].tolist()
    items = [schemas.ItemAnswer(*served.named(row), int(degree[row])) for row in rows]
    return schemas.ItemsAnswer(served.digest, items)


def item(served: ServedModel, name: str) -> schemas.ItemDetail:
    """One item."""
    (row,) = served.item_rows([name])
    model = served.model
    numbers = int(model.item_degree[row]), float(model.log_popularity[row])
    return schemas.ItemDetail(served.digest, *served.named(row), *numbers)


def similar(served: ServedModel, name: str, query: schemas.SimilarQuery) -> schemas.SimilarAnswer:
    """The items most like one, which is left out."""
    (row,) = served.item_rows([name])
    rows, cosines = similar_items(served.model, row, query.n, None, allowed=None, denied=[row], by="row")
    degree = served.model.item_degree
    items = [
        schemas.SimilarItem(rank, *served.named(other), int(degree[other]), cosine)
        for rank, (other, cosine) in enumerate(zip(rows.tolist(), cosines.tolist()), 1)
    ]
    return schemas.SimilarAnswer(served.digest, served.named(row)[0], items)


def explanation(scoring: Scoring, request: schemas.ExplanationRequest) -> schemas.ExplanationAnswer:
    """Reasons why someone would like and consider an item."""
    served = scoring.served()
    person = someone(scoring, served, request.user, request.likes)
    check_explains(served, person)
    (row,) = served.item_rows([request.item])
    why = explain_item(served.model, user_batch([person], served.model), row, request.n, served.items)
    return schemas.ExplanationAnswer(
        served.digest,
        request.user,
        *served.named(row),
        why.p_like,
        why.p_considered,
        **why.to_dict(served.model),
        ignored=person.ignored if request.likes is not None else UNSET,
    )


def landscape(scoring: Scoring, request: schemas.LandscapeRequest) -> schemas.LandscapeAnswer:
    """Parts of the scores of all items that the knobs can bring up, and of a sample of the rest."""
    for name, (first, last) in (("popularity", request.popularity), ("lift", request.lift)):
        if first > last:
            raise Problem("invalid", f"The range of {name} is from {first} to {last}; give the lower end first.")
    served = scoring.served()
    person, model = someone(scoring, served, request.user, request.likes), served.model
    if model.plan.tilt != 0.0:
        raise UsageError("this model was fitted with a tilt, and its scores are no straight lines in the knobs.")
    may = np.ones(model.item_count, bool)
    may[person.liked] = False
    batch = user_batch([person], model)
    if batch.limits is not None:
        may &= ~batch.limits.impossible_items(0, model.item_count)
    rows = np.flatnonzero(may).astype(np.int32)
    mean, _ = logit_moments(person.side, model.items, np.full(len(rows), person.row), rows)
    popularity = model.log_popularity[rows]
    lift = None
    if model.consideration is not None and batch.liked is not None and batch.liked.edges:
        lift = model.log_lift(batch.liked)[0][rows]
    terms = [term.astype(np.float64) for term in (popularity, lift) if term is not None]
    reached = reachable(mean.astype(np.float64), terms, [request.popularity, request.lift][: len(terms)], request.n)
    complete = len(reached) <= request.points
    if not complete:  # those with the highest scores by the model's own knobs
        own = mean + np.float32(model.plan.popularity) * popularity
        reached = np.sort(reached[np.argsort(-own[reached], kind="stable")[: request.points]])
    rest = np.setdiff1d(np.arange(len(rows)), reached, assume_unique=True)
    sample = rest[np.linspace(0, len(rest) - 1, min(len(rest), request.points - len(reached))).astype(np.int64)]
    chosen = np.concatenate([reached, sample])
    ids = rows[chosen][None, :]
    weights = consideration_weights(model, batch.known_likes(model), ids, batch.limits)
    pairs = Pairs(model, batch, ids, weights, interval=request.interval)
    names = [column.name for column in schemas.PAIR_COLUMNS]
    columns = dict(zip(names, served.values(schemas.PAIR_COLUMNS, pairs)))
    return schemas.LandscapeAnswer(
        model=served.digest,
        user=request.user,
        events=person.sequence,
        total=len(rows),
        reached=len(reached),
        complete=complete,
        logit=mean[chosen].tolist(),
        log_popularity=popularity[chosen].tolist(),
        log_lift=None if lift is None else lift[chosen].tolist(),
        **columns,
        ignored=person.ignored if request.likes is not None else UNSET,
    )


def someone(scoring: Scoring, served: ServedModel, user: Id | None, likes: list[Id] | None) -> Person:
    """A user by id, or someone new by likes."""
    if (user is None) == (likes is None):
        raise Problem("invalid", "Give either `user`, an id, or `likes`, a list of items.")
    return scoring.person(served, user, likes)


def check_cost(request: schemas.BatchRequest) -> None:
    """Raise a problem if a batch is too much work."""
    each = request.n * (WHY_COST if request.explain else 1)
    if len(request.users) * each <= MOST_COST:
        return
    asked = f"{len(request.users):,} lists of {request.n:,} items"
    limit = f"a batch may have {MOST_COST:,} items, or {MOST_COST // WHY_COST:,} with reasons"
    most = MOST_COST // each
    instead = f"ask for {most:,} users at once" if most else "ask for fewer items"
    raise Problem(
        "invalid", f"{asked}{' with reasons' if request.explain else ''} are too much: {limit}. So {instead}."
    )


def batch(
    scoring: Scoring, request: schemas.BatchRequest, pause: Pause
) -> tuple[ServedModel, Ranker, Iterator[list[schemas.BatchEntry]]]:
    """An entry for each user, all of one model, some at a time."""
    served, options = scoring.served(), request.ranking()
    ranker = served.ranker(options, request.n)
    questions = [
        Question(options, request.n, user, cold=request.cold, explain=request.explain) for user in request.users
    ]
    parts = (questions[first : first + STEP_USERS] for first in range(0, len(questions), STEP_USERS))
    return served, ranker, (list(map(_entry, part, scoring.answer(part, served, pause, ranker))) for part in parts)


def _entry(question: Question, answer: ListAnswer | BaseException) -> schemas.BatchEntry:
    assert question.user is not None
    if isinstance(answer, Problem):
        return schemas.BatchEntry(question.user, error=answer.details())
    if isinstance(answer, BaseException):
        raise answer
    return schemas.BatchEntry(question.user, not answer.person.warm, answer.person.sequence, answer.items or [])


def batch_json(scoring: Scoring, request: schemas.BatchRequest, pause: Pause) -> schemas.BatchAnswer:
    """The answer to a batch, with entries already in JSON: all at once would hold up other threads."""
    served, ranker, parts = batch(scoring, request, pause)
    encoder = msgspec.json.Encoder()
    entries: list[Any] = [msgspec.Raw(encoder.encode(entry)) for part in parts for entry in part]
    return schemas.BatchAnswer(served.digest, ranker.popularity, ranker.lift, entries)


def batch_stream(scoring: Scoring, request: schemas.BatchRequest, pause: Pause) -> bytes:
    """The lists of a batch as an Arrow stream with the columns of `recommend_table`. The metadata of its schema has the
    errors, as JSON: [{user, error}]."""
    import pyarrow as pa

    served, _, parts = batch(scoring, request, pause)
    entries = [entry for part in parts for entry in part]
    errors = [entry for entry in entries if entry.error is not UNSET]
    table = RecommendationTable(served.model, [entry.user for entry in entries])
    convert = str if table.user_type == "string" else integer_id
    rows = [(entry, each) for entry in entries if entry.items is not UNSET for each in entry.items]
    columns: dict[str, list[Any]] = {
        "user": [convert(entry.user) for entry, _ in rows],
        "cold": [entry.cold for entry, _ in rows],
    }
    arrays = [columns.get(name) or [getattr(each, name) for _, each in rows] for name in table.schema.names]
    about = {"errors": msgspec.json.encode(errors), "model": served.digest}
    sink = pa.BufferOutputStream()
    made = pa.table(arrays, schema=table.schema).replace_schema_metadata(about)
    with pa.ipc.new_stream(sink, made.schema) as stream:
        stream.write_table(made)
    return bytes(sink.getvalue())


def model_answer(served: ServedModel, events: EventStore | None) -> schemas.ModelAnswer:
    """The model, in numbers."""
    model, plan = served.model, served.model.plan
    line, chosen = model.recalibration, plan.chosen
    plain = (int, float, str, bool, type(None))
    return schemas.ModelAnswer(
        digest=served.digest,
        version=__version__,
        since=datetime.fromtimestamp(served.since, UTC).isoformat(timespec="seconds"),
        users=model.user_count,
        items=model.item_count,
        likes=model.users.edges,
        factors=model.factors,
        sweeps=max(0, len(model.bounds) - 1),
        converged=model.converged,
        has_titles=model.titles is not None,
        knows_likes=model.users.knows_likes,
        popularity=plan.popularity,
        lift=None if model.consideration is None else plan.lift,
        calibration=schemas.Calibration(
            line.slope,
            line.shift,
            {name: schemas.KnownNumber(*covariate) for name, covariate in line.covariates.items()},
            line.pairs,
            line.weighting,  # type: ignore[arg-type]
            line.stale,
        ),
        structure=None if model.structure is None else schemas.Structure(*astuple(model.structure)),
        settings={name: value for name, value in model.parameters.items() if isinstance(value, plain)},
        chosen=None if chosen is None else {name: float(value) for name, value in chosen.settings.items()},
        graph=model.one_kind,
        integer_users=served.users.ids.kind != "string",
        integer_items=served.items.ids.kind != "string",
        takes_events=events is not None and not model.one_kind,
        event_sequence=0 if events is None else model.events.up_to(events.identity),
    )
