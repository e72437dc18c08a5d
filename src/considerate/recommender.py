"""Facade `Recommender`, with the conventions of scikit-learn and the signatures of implicit."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, fields, replace
from inspect import cleandoc
from typing import Any, Unpack

from considerate.data import ReaderOptions, read_likes
from considerate.data.options import ReaderKeywords
from considerate.data.side_information import read_side
from considerate.errors import UsageError
from considerate.evaluation.expected_likes import ExpectedLikes, expected_likes
from considerate.fitting.driver import run_fit
from considerate.fitting.in_memory import InMemoryBackend
from considerate.fitting.progress import progress
from considerate.fitting.resume import CheckpointOptions
from considerate.fitting.session import FitBackend, FitRequest, FitSession
from considerate.fitting.stopping import FitStep
from considerate.fitting.update import UpdateOptions, updated
from considerate.inference.plan import DRIFT, Parameters
from considerate.model.answers import Answers, Named
from considerate.model.file import load_model, model_path, save_model, save_sharded, with_parameters
from considerate.model.model import Model
from considerate.model.names import By
from considerate.model.removal import without_users
from considerate.settings import described_parameters

logger = logging.getLogger("considerate")
PathLike = str | os.PathLike[str]


@dataclass(eq=False)
class Recommender(Parameters, Answers):
    """Recommender for likes alone: one-class collaborative filtering with random graphs.

    The likes of users are known. The pairs that were considered and not liked are inferred, as a hidden graph H that
    contains the likes. `fit` finds a posterior over user and item vectors by variational Bayes. The answers are
    p(like | considered) with its interval, and p(considered). The two are separate, but p(like) still depends on
    popularity: popular items get fewer unliked edges per like than rare ones, and a higher p(like).

        model = Recommender().fit("ratings.parquet", where="rating >= 4", titles="items.parquet")
        model.recommend_table(["ann"], N=10)  # by the ids of the data, as an Arrow table
        model.recommend_table(["ann"], N=10, popularity=0.0, lift=0.0)  # by liking alone
        model.recommend_for(["dune", "solaris"])  # someone who was not in training
        model.explain("ann", "dune")
        model.save("model.safetensors")

    Try `factors`, `negatives` and `likelihood_weight` first; "auto" chooses the last two on likes held out.
    """

    # --- Conventions of scikit-learn ---

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Settings by name, as they were given."""
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
        item_features: Any = None,
        user_features: Any = None,
        reader: Mapping[str, Any] | ReaderOptions | None = None,
        considered: Any = None,
        impossible: Any = None,
        backend: FitBackend | None = None,
        model_folder: PathLike | None = None,
        checkpoint: PathLike | None = None,
        checkpoint_every: int = 5,
        resume: bool = False,
        **reading: Unpack[ReaderKeywords],
    ) -> Recommender:
        """Fit to likes: a path, a data frame, a table, a scipy sparse matrix of users by items, or anything else that
        `read_interactions` reads, with its options as keywords, such as where="rating >= 4" or titles="items.csv".

        Every stored value of a matrix is one like and must be positive. `callback(sweep, seconds, bound)` is called
        after each sweep, with the bound of the posterior before it. Ctrl-C raises KeyboardInterrupt as usual, and
        leaves this fitted to the last finished sweep. Returns self.

        `item_features` and `user_features` are tables by id, with categories, tags and numbers, or matrices. Prior
        means of vectors and biases then depend on features, and users and items without likes are predicted from them.
        Anything that `read_features` reads, or its result (docs/features.md).

        `considered` are pairs that were considered and not liked, from any source that likes are read from. A rule
        selects rows of the likes' own source, considered_where="event = 'view'". `considered_are` tells if these are
        some or all. `impossible` are pairs that could not be considered, or `Impossible(...)` with rules: they are
        never drawn and never recommended.

        `reader` has the same options in one object, in place of keywords. `backend` divides the graph: `RayBackend()`
        over processes or machines, `OutOfCore()` over files of this machine. Users then stay in their parts and are
        read on demand from the shards in `model_folder`, which all machines must share (a temporary folder if not
        given).

        `checkpoint` is a folder, or an address such as s3://bucket/name, where the state is written every
        `checkpoint_every` sweeps. With `resume` the fit goes on from the last checkpoint there, with the same bits.
        """
        options = ReaderOptions.choose(reader, reading)
        side = read_side(user_items, options, considered, impossible).with_features(item_features, user_features)
        request = replace(self.fit_request(user_items, reader=options, model_folder=model_folder), side=side)
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
        """Make the request for `fit_steps` of the data and the current settings, checked."""
        parameters = self.get_params()
        folder = None if model_folder is None else os.fspath(model_folder)
        return FitRequest(user_items, self.plan(), ReaderOptions.of(reader), parameters, model_folder=folder)

    def fit_steps(self, user_items: Any, backend: FitBackend | None = None) -> Generator[FitStep]:
        """Fit, one sweep at a time, to likes or to a `fit_request`. After every step, and if the caller stops, this has
        the model of the last sweep; with a `backend` only when the steps have ended."""
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

    def update(
        self,
        new_likes: Any,
        *,
        days: float = 1.0,
        drift: float = DRIFT,
        removed: Any = None,
        reader: Mapping[str, Any] | ReaderOptions | None = None,
        **reading: Unpack[ReaderKeywords],
    ) -> Recommender:
        """Update the model with likes that came since the fit, or since the last update: anything that `fit` reads, or
        None. Returns self.

        The old posterior is the prior of each user and item with a new like, with `drift` x `days` added to its
        variances. New ids are added and likes are merged; known likes change nothing. The weights of the ranking and
        the recalibration stay. Only new likes and the unliked edges drawn for them are summed. This happens in memory
        with every backend: users in shards are read whole.

        `removed` are likes to take out, read by the same options. Their users are folded in again from the likes that
        are left. The items' vectors keep a trace of removed likes until the next fit.
        """
        options = ReaderOptions.choose(reader, reading)
        likes = None if new_likes is None else read_likes(new_likes, options)
        gone = None if removed is None else read_likes(removed, options.untitled())
        self._model = updated(self.model_, likes, gone, UpdateOptions(days, drift), self.threads)
        return self

    def forget(self, users: Named, *, by: By = "id") -> Recommender:
        """Remove users from the model: their vectors, likes and ids, and the share of their likes in degrees, in pi and
        in the walk's table. Returns self; `save` then writes a file without them.

        The items' vectors keep a trace of their likes until the next fit. If ids are the row numbers of a matrix, the
        rows of others stay, and the rows of these users become empty.
        """
        model = self.model_
        self._model = without_users(model, model.user_names(by).rows(users).reshape(-1))
        self.__dict__.pop("data_", None)  # the data of the fit has their ids
        return self

    # --- Quality of the answers; the answers are in model/answers.py ---

    def recalibrate(
        self, users: Named, items: Named, liked: Any, equal_classes: bool = False, *, by: By = "id"
    ) -> Recommender:
        """Recalibrate p(like) on pairs that are known to have been considered, `liked` or not. Returns self.

        The logit of p(like) gets a slope, a shift and, if they predict held-out pairs better, weights of log pi, lift
        and the number of the user's likes. p(like) is then the share of likes among such pairs. With `equal_classes`
        liked pairs have the same total weight as the others, like in the model's fair coin. Pairs that are likes of the
        training are left out. This replaces an earlier recalibration, is saved with the model, and changes p(like) and
        its interval, but no ranking other than `score="p_like"`. `reliability_` then compares p(like) with these pairs,
        each pair by a recalibration that was fitted to other users.
        """
        from considerate.evaluation.recalibration import recalibrated_model

        self._model = recalibrated_model(
            self.model_,
            self.model_.user_names(by).rows(users),
            self.model_.item_names(by).rows(items),
            liked,
            equal_classes,
            int(self.seed),
        )
        return self

    def expected_likes(self, *, seed: int = 0) -> ExpectedLikes:
        """Ratio of expected to observed likes of the training, by the degree of the item and of the user.

        With ratios near 1, p(like) and p(considered) are consistent with each other on the likes of the fit; this is no
        evidence that H is right. For very large models the seed draws a sample of users, and rows have a standard
        error. Raises UsageError for models without likes, or fitted with `considered_are` other than "some".
        """
        return expected_likes(self.model_, seed=seed, threads=self.threads)

    def score(self, data: Any, y: Any = None, *, metric: str = "s_rank", **reading: Unpack[ReaderKeywords]) -> float:
        """Mean over users of a metric of held-out likes: "s_rank" (eq. 23), "ndcg@20", "recall@20", "mrr", ...

        Every row of a matrix is a new user: one like is hidden, the others are folded in; a user with one like is left
        out. Other data is read with the options of the fit, or with the options given as keywords, and has its ids.
        Likes that the fit did not have are ranked. Of a new user the last like is ranked, with the others folded in.
        """
        from considerate.evaluation.fitted import mean_metric

        options = ReaderOptions.of(reading) if reading else self.__dict__.get("_reader")
        return mean_metric(self.model_, data, metric, int(self.seed), options)

    def save(self, fileobj_or_path: PathLike, *, likes: bool = True, shards: int | None = None) -> None:
        """Write the model to a file in safetensors' format, whole or not at all.

        With `likes=False` the file has no likes, so the model cannot filter liked items by itself. With `shards` the
        model is a folder with the users in so many files.
        """
        if shards is None:
            save_model(self.model_, model_path(fileobj_or_path), likes=likes)
        else:
            save_sharded(self.model_, model_path(fileobj_or_path), shards, likes=likes)

    @classmethod
    def load(cls, fileobj_or_path: PathLike, *, verify: bool | None = None) -> Recommender:
        """Load a model from its file, or from its folder of shards, mapped into memory. Shards are opened on demand.

        A file of up to 64 MB is checked whole. The parts of a larger one are checked when they are used, and not every
        value, unless verify=True. verify=False reads no checksum.
        """
        model = load_model(model_path(fileobj_or_path), verify=verify)
        parameters = {"consideration": "popularity"} | model.parameters  # files from before the walk
        recommender = with_parameters(cls, parameters, fileobj_or_path)
        recommender._model = model
        return recommender


Recommender.__doc__ = f"{cleandoc(Recommender.__doc__ or '')}\n\n{described_parameters(Recommender)}\n"
