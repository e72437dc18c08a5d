"""The facade: scikit-learn's habits, implicit's signatures."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from inspect import cleandoc
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
from numpy.typing import NDArray

from considerate.data import ReaderOptions
from considerate.data.options import ReaderKeywords
from considerate.errors import ModelFileError, UsageError
from considerate.fitting.driver import run_fit
from considerate.fitting.in_memory import InMemoryBackend
from considerate.fitting.progress import progress
from considerate.fitting.resume import CheckpointOptions
from considerate.fitting.session import FitBackend, FitRequest, FitSession
from considerate.fitting.stopping import FitStep
from considerate.inference.posterior import Side
from considerate.model.changes import with_items, with_users
from considerate.model.explain import Explanation, explain, similar_items, similar_users
from considerate.model.file import load_model, model_path, save_model, save_sharded
from considerate.model.index import PROBES, ItemIndex
from considerate.model.learned import Learned
from considerate.model.model import Model
from considerate.model.ranking import RankingKeywords, RankingOptions
from considerate.model.rows import Lists, excluded_rows, item_rows, likes_adjacency
from considerate.model.serving import Ranker, item_vectors, recommend_rows, user_vectors
from considerate.model.tables import recommendation_batches, recommendations_for_likes
from considerate.parameters import Parameters, described_parameters

if TYPE_CHECKING:
    import pyarrow

logger = logging.getLogger("considerate")
PathLike = str | os.PathLike[str]
Rows = int | Sequence[int] | NDArray[Any]


@dataclass(eq=False)
class Recommender(Parameters, Learned):
    """A recommender for likes alone: one-class collaborative filtering with random graphs.

    What a user liked is known. What was considered and not liked is inferred, as a hidden graph H that contains the
    likes. `fit` finds a posterior over user and item vectors by variational Bayes. The answers are p(like | considered)
    with its interval, and p(considered). They are told apart, but p(like) is not free of popularity: popular items get
    fewer unliked edges per like than rare ones, and a higher p(like).

        model = Recommender().fit("ratings.parquet", reader={"where": "rating >= 4"})
        model.recommend_table(["ann"], N=10)
        model.recommend_table(["ann"], N=10, popularity=0.0, lift=0.0)  # by liking alone
        model.save("model.safetensors")

    Try `factors`, `negatives` and `likelihood_weight` first; "auto" chooses the last two on likes held out.
    """

    # --- scikit-learn's habits ---

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The settings by name, as they were given."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def set_params(self, **params: Any) -> Recommender:
        """Change settings by name; returns self."""
        names = [field.name for field in fields(self)]
        for name, value in params.items():
            if name not in names:
                raise UsageError(f"there is no setting {name!r}; the settings are {', '.join(names)}.")
            setattr(self, name, value)
        return self

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import Tags, TargetTags

        return Tags(estimator_type=None, target_tags=TargetTags(required=False))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_model")

    # --- Fitting ---

    def fit(
        self,
        user_items: Any,
        show_progress: bool = False,
        callback: Callable[[int, float, float], Any] | None = None,
        *,
        reader: Mapping[str, Any] | ReaderOptions | None = None,
        backend: FitBackend | None = None,
        model_folder: PathLike | None = None,
        checkpoint: PathLike | None = None,
        checkpoint_every: int = 5,
        resume: bool = False,
        **reading: Unpack[ReaderKeywords],
    ) -> Recommender:
        """Fit to likes: a path, a data frame, a table, a scipy sparse matrix of users by items: anything that
        `read_interactions` reads, with its options as keywords, such as where="rating >= 4" or titles="items.csv".

        Every stored value of a matrix is one like and must be positive. `callback(sweep, seconds, bound)` is called
        after each sweep, with the bound of the posterior before it. Ctrl-C raises KeyboardInterrupt, as ever, and
        leaves this fitted to the last finished sweep. Returns self.

        `reader` are the same options in one object, in place of keywords. `backend` partitions the graph:
        `RayBackend()` over processes or machines, `OutOfCore()` over files of this machine; users then stay where
        they are and are read from the shards in `model_folder`, which all machines must share, when they are asked for
        (a temporary folder if not given).

        `checkpoint` is a folder, or an address such as s3://bucket/name, that the state is written to every
        `checkpoint_every` sweeps; with `resume` the fit goes on from the last one there, to the same bits.
        """
        options = ReaderOptions.choose(reader, reading)
        request = self.fit_request(user_items, reader=options, model_folder=model_folder)
        request = replace(request, checkpoint=CheckpointOptions.parse(checkpoint, checkpoint_every, resume))
        begun, steps = time.perf_counter(), self.fit_steps(request, backend)
        try:
            for step in progress(steps, self.sweeps, later=backend is not None) if show_progress else steps:
                if callback is not None:
                    callback(step.sweep, time.perf_counter() - begun, step.bound.total)
        except KeyboardInterrupt:
            steps.close()
            if self.__sklearn_is_fitted__():
                logger.warning("interrupted after sweep %d; its posterior is kept", self.n_iter_)
            raise
        finally:
            steps.close()
        if show_progress and self.chosen_ is not None:
            print(self.chosen_.told())
        return self

    def fit_request(self, user_items: Any, *, reader: Any = None, model_folder: PathLike | None = None) -> FitRequest:
        """What `fit_steps` is asked for: the data and the settings as they are now, checked."""
        parameters = self.get_params()
        folder = None if model_folder is None else os.fspath(model_folder)
        return FitRequest(user_items, self.plan(), ReaderOptions.of(reader), parameters, model_folder=folder)

    def fit_steps(self, user_items: Any, backend: FitBackend | None = None) -> Generator[FitStep]:
        """Fit, one sweep at a time, to likes or as a `fit_request` says. After every step, and if the caller stops,
        this is fitted as far as it got; with a `backend` it is when the steps have ended."""
        if backend is not None and not hasattr(backend, "start"):
            raise UsageError(f"backend is {backend!r}; it must be None, RayBackend(...) or OutOfCore(...).")
        request = user_items if isinstance(user_items, FitRequest) else self.fit_request(user_items)
        this_fit = object()

        def publish(session: FitSession, model: Model | None) -> None:
            if model is None:
                self._current_fit = this_fit
            if self._current_fit is not this_fit:
                return  # another fit has begun meanwhile
            self.data_, self._reader = session.data, request.reader.untitled()
            self.__dict__.pop("_model", None)
            if model is not None:
                self._model = model

        return run_fit(request, backend or InMemoryBackend(), publish)

    # --- What a fitted model answers ---

    def predict_logit(self, users: Rows, items: Rows) -> tuple[Any, Any]:
        """Mean and standard deviation of the logit of pairs, on the fair-coin scale."""
        return self.model_.pair_logits(users, items)

    def predict_proba(self, users: Rows, items: Rows, *, recalibrated: bool = True) -> Any:
        """p(like | considered) of pairs (eq. 22), recalibrated if the model was, unless `recalibrated` is False."""
        return self.model_.pair_probabilities(users, items, recalibrated)

    def recalibrate(self, users: Rows, items: Rows, liked: Any, equal_classes: bool = True) -> Recommender:
        """Fit p' = sigma(slope logit(p) + shift) to pairs that are known to have been considered, `liked` or not.

        With `equal_classes` liked pairs weigh as much as the others, as the model's fair coin has it. It replaces an
        earlier recalibration, is saved with the model, and changes p(like) and its interval, but no ranking.
        """
        from considerate.evaluation.calibration import EQUAL, fit_recalibration

        p = np.atleast_1d(self.predict_proba(users, items, recalibrated=False))
        line = fit_recalibration(p, np.atleast_1d(np.asarray(liked)), EQUAL if equal_classes else None)
        self._model = self.model_.with_same_items(recalibration=line)
        return self

    def recommend(
        self,
        userid: Rows,
        user_items: Any = None,
        N: int = 10,
        filter_already_liked_items: bool = True,
        filter_items: Any = None,
        recalculate_user: bool = False,
        items: Any = None,
        popularity: float | None = None,
        *,
        lift: float | None = None,
        score: str | None = None,
        explore_kappa: float = 0.0,
        thompson_seed: int | None = None,
        index: ItemIndex | None = None,
    ) -> Lists:
        """The N best items: (ids, scores), implicit's way.

        `userid` is a row number or several. `user_items` are the likes to filter out and to compute lift from (those of
        training if not given), and with `recalculate_user` to fold in. `filter_items` are never recommended, `items`
        are the only ones that may be. The score is the mean logit + `popularity` * log pi + `lift` * log(w / pi), with
        w the chance that the user considers the item, or one of the paper's (`score="like"`, `"popularity"`,
        `"popularity_x_like"`). Knobs that are not given are the model's own. `explore_kappa` adds standard deviations
        of the logit, `thompson_seed` draws the logits. With an `index` of `build_index` only items near the user are
        looked at: some that belong in the list may be missed. One user gets a list that may be shorter than N; of
        several, a short row ends in id -1 and score NaN.
        """
        options = RankingOptions(
            popularity=popularity,
            lift=lift,
            score=score,
            filter_already_liked_items=filter_already_liked_items,
            explore_kappa=explore_kappa,
            thompson_seed=thompson_seed,
            index=index,
        )
        if index is not None and items is not None:
            raise UsageError("index does not go with items: the items that are allowed are ranked without one.")
        excluded = excluded_rows(self.model_.item_count, items, filter_items, "item")
        ranker = Ranker(self.model_, options, N, excluded)
        return recommend_rows(ranker, userid, user_items, N, recalculate_user, self.threads)

    def recommend_table(
        self,
        users: Any = None,
        N: int = 10,
        *,
        options: RankingOptions | None = None,
        **ranking: Unpack[RankingKeywords],
    ) -> pyarrow.Table:
        """Recommendations by the data's own ids, as an Arrow table: user, rank, item, title (where there are any),
        p_like, low, high (its 90 % interval), p_considered, score, cold.

        `users` is an id, several, or None for all. How they are ranked: keywords popularity, lift, score, cold,
        filter_already_liked_items, allow, deny (ids of items), explore_kappa, thompson_seed, index, or RankingOptions
        with them as `options`. A user who is unknown, or liked nothing, is an error (of all, those who liked nothing
        are left out), or with `cold="popular"` gets popular items and a true value in `cold`.
        """
        import pyarrow as pa

        return pa.Table.from_batches(self.recommend_batches(users, N, options=options, **ranking))

    def recommend_batches(
        self,
        users: Any = None,
        N: int = 10,
        *,
        options: RankingOptions | None = None,
        batch: int = 16_384,
        **ranking: Unpack[RankingKeywords],
    ) -> Iterator[pyarrow.RecordBatch]:
        """`recommend_table`, some users at a time."""
        ranker = Ranker(self.model_, RankingOptions.choose(options, **ranking), N)
        return recommendation_batches(ranker, users, batch=batch, threads=self.threads)

    def recommend_for(
        self,
        likes: Sequence[Any],
        N: int = 10,
        *,
        options: RankingOptions | None = None,
        **ranking: Unpack[RankingKeywords],
    ) -> pyarrow.Table:
        """`recommend_table` for someone who was not in training, from the ids of what they like; `user` is null."""
        return recommendations_for_likes(Ranker(self.model_, RankingOptions.choose(options, **ranking), N), likes)

    def item_rows(self, ids: Sequence[Any]) -> NDArray[np.int64]:
        """Row numbers of items by the data's own ids."""
        return item_rows(self.model_.item_ids, ids)

    def fold_in(self, items: Any) -> Side:
        """The posterior of a user who was not in training: from a list of item rows, or a matrix of users by items."""
        return self.model_.fold_in.users(likes_adjacency(items, self.model_.item_count))

    def similar_items(
        self,
        itemid: Rows,
        N: int = 10,
        recalculate_item: bool = False,
        item_users: Any = None,
        filter_items: Any = None,
        items: Any = None,
    ) -> Lists:
        """The N items whose mean vectors have the largest cosine with this one's, itself first: (ids, cosines).

        With `recalculate_item`, this one is folded in from the users who liked it, one row of `item_users` an item.
        """
        return similar_items(self.model_, itemid, N, recalculate_item, item_users, allowed=items, denied=filter_items)

    def similar_users(self, userid: Rows, N: int = 10, filter_users: Any = None, users: Any = None) -> Lists:
        """The N users whose mean vectors have the largest cosine with this one's, itself first: (ids, cosines)."""
        return similar_users(self.model_, userid, N, allowed=users, denied=filter_users)

    def explain(self, userid: int, itemid: int, user_items: Any = None, N: int = 10) -> Explanation:
        """Why: p(like), and the user's items that moved the logit most; as attributes, why the item is considered."""
        return explain(self.model_, userid, itemid, user_items, N)

    def export_vectors(self, popularity: float | None = None) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """(users [M, K + 2], items [N, K + 2]) for a vector store: their inner product is the score without lift.

        Lift depends on the user's likes and the item together, and no inner product of K + 2 coordinates holds it. With
        lift in the score, retrieve some hundreds by the vectors and rank those with `recommend(..., items=...)`.

        The item's bias and `popularity` * log pi are its last two coordinates, against ones of the user. With user
        biases there is a third, the user's bias against a one of the item.
        """
        return user_vectors(self.model_.users.whole().side), item_vectors(self.model_, popularity)

    def build_index(self, lists: int | None = None, probes: int = PROBES) -> ItemIndex:
        """An index of the items, for `recommend(user, index=...)` of single users in large catalogues.

        Items are cut into `lists` of near ones, 4 sqrt(items) if not given; a request looks into `probes` of them.
        `ItemIndex.save(path)` writes it to a file. It needs faiss: `pip install considerate[ann]`.
        """
        return ItemIndex.of(self.model_, lists, probes)

    def load_index(self, path: PathLike, probes: int = PROBES) -> ItemIndex:
        """The index of this model from its file; that of another is refused."""
        return ItemIndex.load(path, self.model_, probes)

    def score(self, data: Any, y: Any = None, *, metric: str = "s_rank") -> float:
        """The mean over users of a metric of likes held out: "s_rank" (eq. 23), "ndcg@20", "recall@20", "mrr", ...

        Of a matrix every row is a new user: one like is hidden, the others are folded in; a user of one like is left
        out. Other data is read as that of the fit was, and speaks its ids: likes that this was not fitted to are
        ranked, and of users that it does not know the last one, with the others folded in.
        """
        from considerate.evaluation.fitted import mean_metric

        return mean_metric(self.model_, data, metric, int(self.seed), self.__dict__.get("_reader"))

    def partial_fit_users(self, userids: Rows, user_items: Any) -> Recommender:
        """Update or add users from their likes, the items held fixed; row i of user_items is of userids[i]."""
        self._model = with_users(self.model_, userids, user_items)
        return self

    def partial_fit_items(self, itemids: Rows, item_users: Any) -> Recommender:
        """Update or add items from who liked them, the users held fixed; row i of item_users is of itemids[i]."""
        self._model = with_items(self.model_, itemids, item_users)
        return self

    def save(self, fileobj_or_path: PathLike, *, likes: bool = True, shards: int | None = None) -> None:
        """Write the model to a file in safetensors' format, whole or not at all.

        With `likes=False` what users liked is left out; the model then cannot filter it by itself. With `shards` it is
        written to a folder, the users in so many files.
        """
        if shards is None:
            save_model(self.model_, model_path(fileobj_or_path), likes=likes)
        else:
            save_sharded(self.model_, model_path(fileobj_or_path), shards, likes=likes)

    @classmethod
    def load(cls, fileobj_or_path: PathLike, *, verify: bool | None = None) -> Recommender:
        """A model from its file, or from its folder of shards, mapped into memory. A shard is opened when it is needed.

        A file of up to 64 MB is checked whole. A larger one is checked when it is used, as far as it is used, and not
        every value, unless verify=True; verify=False looks at no checksum.
        """
        model = load_model(model_path(fileobj_or_path), verify=verify)
        parameters = {"consideration": "popularity"} | model.parameters  # as before the walk
        recommender = cls(**{field.name: parameters[field.name] for field in fields(cls) if field.name in parameters})
        try:
            recommender.check()
        except UsageError as error:
            raise ModelFileError(f"{fileobj_or_path}: its parameters are not possible ({error})") from error
        recommender._model = model
        return recommender


Recommender.__doc__ = f"{cleandoc(Recommender.__doc__ or '')}\n\n{described_parameters(Recommender)}\n"
