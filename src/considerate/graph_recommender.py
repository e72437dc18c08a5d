"""Facade `GraphRecommender`, for graphs whose vertices are of one kind: friends, links, mail, citations."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, fields, replace
from inspect import cleandoc
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
from numpy.typing import NDArray

from considerate.data import ReaderOptions
from considerate.data.edges import read_edges
from considerate.data.options import ReaderKeywords
from considerate.errors import ModelFileError, UsageError
from considerate.fitting.driver import run_fit
from considerate.fitting.progress import progress
from considerate.fitting.resume import CheckpointOptions
from considerate.fitting.session import FitBackend, FitRequest, FitSession
from considerate.fitting.stopping import FitStep
from considerate.fitting.vertices import VertexBackend
from considerate.inference.parts.vertices import GraphParameters
from considerate.model.answers import Named
from considerate.model.explain import Explanation, explain, similar_items
from considerate.model.file import load_model, model_path, save_model, with_parameters
from considerate.model.learned import Learned
from considerate.model.links import link_scores
from considerate.model.model import Model
from considerate.model.names import By, IdArray, Names, One, Ranked
from considerate.model.ranking import RankingKeywords, RankingOptions, finite
from considerate.model.serving import Ranker, recommend_lists
from considerate.model.tables import Recommendations, recommendation_batches, recommendations_for_likes
from considerate.settings import described_parameters
from considerate.storage.files import PathLike

if TYPE_CHECKING:
    from typing import Self

logger = logging.getLogger("considerate")
Floats = NDArray[np.float32]
Scores = NDArray[np.float64]


@dataclass(eq=False)
class GraphRecommender(GraphParameters, Learned):
    """Recommender of links in a graph whose vertices are of one kind.

    p(link | considered) = sigma(u_m'u_n + b_m + b_n), with a posterior over the vectors and biases of all vertices. The
    pairs that were considered and not linked are inferred, as a hidden graph H that contains the edges.

        model = GraphRecommender().fit("friends.parquet")
        model.recommend("ann")  # who may become a friend of hers: (ids, scores)
        model.predict_proba("ann", "bob")
        model.predict_interval("ann", "bob")  # the 90 % interval
        model.save("model.safetensors")

    Answers do not depend on which end of a pair is named first, except for `recommend`: its score has the popularity of
    the other end alone, and the lift from the given vertex.
    """

    # --- Fitting ---

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Settings by name, as they were given."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def fit(
        self,
        edges: Any,
        show_progress: bool = False,
        callback: Callable[[int, float, float], Any] | None = None,
        *,
        reader: Mapping[str, Any] | ReaderOptions | None = None,
        backend: FitBackend | None = None,
        checkpoint: PathLike | None = None,
        checkpoint_every: int = 5,
        resume: bool = False,
        **reading: Unpack[ReaderKeywords],
    ) -> Self:
        """Fit to edges: anything that `read_interactions` reads, with two columns of vertices such as src and dst
        (`user_column` and `item_column` name them), or a square scipy sparse matrix.

        Edges have no direction. Edges given twice, or both ways, count once; edges from a vertex to itself are left
        out. `callback(sweep, seconds, bound)`, Ctrl-C and checkpoints work as in `Recommender.fit`. A fit runs on
        threads of this process, and a `backend` is refused: each block's step reads all other vertices. Returns self.
        """
        request = self.fit_request(edges, ReaderOptions.choose(reader, reading))
        request = replace(request, checkpoint=CheckpointOptions.parse(checkpoint, checkpoint_every, resume))
        begun, steps = time.perf_counter(), self.fit_steps(request, backend)
        try:
            for step in progress(steps, self.sweeps) if show_progress else steps:
                if callback is not None:
                    callback(step.sweep, time.perf_counter() - begun, step.bound.total)
        finally:
            steps.close()
        return self

    def fit_request(self, edges: Any, reader: ReaderOptions | None = None) -> FitRequest:
        """Make the request for `fit_steps` of the edges and the current settings, checked."""
        return FitRequest(edges, self.plan(), reader or ReaderOptions(), self.get_params())

    def fit_steps(self, request: FitRequest, backend: FitBackend | None = None) -> Generator[FitStep]:
        """Fit, one sweep at a time. After every step, and if the caller stops, this has the model of the last sweep."""
        if backend is not None:
            raise UsageError(
                "a graph of vertices is fitted in memory: each block's step reads the rows of all others, which would "
                "travel between machines once a block. Leave backend out."
            )

        def publish(session: FitSession, model: Model | None) -> None:
            self.data_, self._reader = session.data, request.reader.untitled()
            self.__dict__.pop("_model", None)
            if model is not None:
                self._model = model

        return run_fit(request, VertexBackend(), publish)

    # --- Answers ---

    def vertex_ids(self, rows: Named | None = None) -> IdArray:
        """Ids of vertices by row number, or of all vertices; ids of a matrix are the row numbers."""
        return self.model_.item_names().at(rows)

    def vertex_rows(self, ids: Named) -> NDArray[np.int64]:
        """Row numbers of vertices by id: their place in `vectors_` and `popularity_`."""
        return self._names().rows(ids)

    @property
    def vectors_(self) -> NDArray[np.float32]:
        """Posterior means of the vectors, [vertices, factors]; with `signed` the second half of the factors repels."""
        return self.model_.items.mean

    def predict_logit(self, first: Named, second: Named, *, by: By = "id") -> tuple[float | Floats, float | Floats]:
        """Mean and standard deviation of the logit of pairs, on the fair-coin scale; as many of each, or one."""
        return self.model_.pair_logits(*self._pairs(first, second, by))

    def predict_proba(self, first: Named, second: Named, *, by: By = "id") -> float | Floats:
        """p(link | considered) of pairs (eq. 22); as many of each, or one."""
        probabilities: float | Floats = self.model_.pair_probabilities(*self._pairs(first, second, by))
        return probabilities

    def predict_interval(
        self, first: Named, second: Named, *, interval: str = "structural", by: By = "id"
    ) -> tuple[Floats, Floats]:
        """(low, high): the 90 % interval of p(link | considered) of pairs. With interval="posterior" it has the
        posterior's variance alone."""
        ends: tuple[Floats, Floats] = self.model_.pair_intervals(*self._pairs(first, second, by), interval)
        return ends

    def recalibrate(
        self, first: Named, second: Named, linked: Any, equal_classes: bool = False, *, by: By = "id"
    ) -> Self:
        """Recalibrate p(link) on pairs that are known to have been considered, `linked` or not, by a slope and a shift
        of its logit. Returns self. See `Recommender.recalibrate`."""
        from considerate.evaluation.recalibration import recalibrated_model

        rows = self._pairs(first, second, by)
        self._model = recalibrated_model(self.model_, *rows, linked, equal_classes, int(self.seed))
        return self

    def predict_score(
        self, first: Named, second: Named, *, popularity: float | None = None, lift: float | None = None, by: By = "id"
    ) -> Scores:
        """Score that ranks pairs of the whole graph: the mean logit + popularity (log pi_m + log pi_n) + lift times the
        mean log lift of both directions. The default weights are the model's own."""
        weights = [None if weight is None else finite("weight", weight) for weight in (popularity, lift)]
        low, high = map(np.atleast_1d, self._pairs(first, second, by))
        return link_scores(self.model_, low, high, *weights)

    def recommend(
        self,
        vertex: Named,
        N: int = 10,
        *,
        popularity: float | None = None,
        lift: float | None = None,
        filter_linked: bool = True,
        allow: Any = None,
        deny: Any = None,
        by: By = "id",
    ) -> Ranked:
        """Recommend N vertices, never itself, that one vertex, or each of several, may link to: (ids, scores).

        The score is the mean logit + `popularity` * log pi + `lift` * log(w / pi), with w the chance that this vertex
        considers the other. The default weights are the model's own. Linked vertices are left out, unless
        `filter_linked` is False. Vertices in `deny` are left out too; with `allow`, only its vertices are recommended.
        """
        options = RankingOptions(
            popularity=popularity, lift=lift, filter_already_liked_items=filter_linked, allow=allow, deny=deny
        )
        return recommend_lists(Ranker(self.model_, options, N, by), vertex, None, N, False, self.threads)

    def recommend_table(
        self, vertices: Any = None, N: int = 10, *, by: By = "id", **ranking: Unpack[RankingKeywords]
    ) -> Recommendations:
        """Recommend in a table as `Recommender.recommend_table` does: `user` is the given vertex, `item` the other,
        `p_like` p(link | considered). `vertices` is one, several, or None for all with edges."""
        import pyarrow as pa

        ranker = Ranker(self.model_, RankingOptions(**ranking), N, by)
        return Recommendations(pa.Table.from_batches(recommendation_batches(ranker, vertices, threads=self.threads)))

    def recommend_for(
        self, links: Any, N: int = 10, *, by: By = "id", **ranking: Unpack[RankingKeywords]
    ) -> Recommendations:
        """Recommend in a table for a vertex that was not in training, from the vertices that it is linked to."""
        return recommendations_for_likes(Ranker(self.model_, RankingOptions(**ranking), N, by), links)

    def similar(self, vertex: Named, N: int = 10, *, by: By = "id") -> Ranked:
        """Find the N vertices with the largest cosine of mean vectors with this one, itself first: (ids, cosines)."""
        return similar_items(self.model_, vertex, N, None, None, None, by)

    def explain(self, vertex: One, other: One, N: int = 10, *, by: By = "id") -> Explanation:
        """Explain why `vertex` may link to `other`: p(link | considered), and the neighbours of `vertex` that moved it
        most; attributes explain why it is considered."""
        return explain(self.model_, vertex, other, None, N, by)

    def evaluate(
        self,
        edges: Any,
        *,
        popularity: float | None = None,
        lift: float | None = None,
        pairs: int = 100_000,
        reader: Mapping[str, Any] | ReaderOptions | None = None,
    ) -> dict[str, float]:
        """Compare the scores of held-out edges with pairs without an edge: {"auc", "hits@50", "edges", "pairs"}.

        "auc" is the chance that such an edge scores above such a pair, "hits@50" the share of edges above the 50th best
        pair. Edges of the training, and edges of new vertices, are left out. Edges are read with the options of the
        fit, or with `reader`. The default weights are the model's own.
        """
        from considerate.evaluation.links import METRICS, new_edges

        model, options = self.model_, self.__dict__.get("_reader") if reader is None else reader
        test = new_edges(model, read_edges(edges, ReaderOptions.of(options)), pairs, int(self.seed))
        scores = link_scores(model, test.first, test.second, popularity, lift)
        counts = {"edges": test.hidden, "pairs": len(test.first) - test.hidden}
        return {metric: test.value(scores, metric) for metric in METRICS} | counts

    def score(self, edges: Any, y: Any = None, *, metric: str = "auc") -> float:
        """One metric of `evaluate`: "auc" or "hits@50"."""
        found = self.evaluate(edges)
        if metric not in found:
            raise UsageError(f"metric is {metric!r}; it must be 'auc' or 'hits@50'.")
        return found[metric]

    def _names(self, by: By = "id") -> Names:
        return replace(self.model_.item_names(by), what="vertex")

    def _pairs(self, first: Named, second: Named, by: By) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows of pairs, the lower one first, so that answers do not depend on the order of the ends."""
        names = self._names(by)
        rows = names.rows(first), names.rows(second)
        try:
            return np.minimum(*rows), np.maximum(*rows)
        except ValueError:
            shapes = " and ".join(str(ends.shape) for ends in rows)
            raise UsageError(f"vertices of shapes {shapes} do not make pairs; give as many of each, or one.") from None

    # --- Model files ---

    def save(self, path: PathLike) -> None:
        """Write the model to a file in safetensors' format, whole or not at all. The file has each vertex once."""
        save_model(self.model_, model_path(path))

    @classmethod
    def load(cls, path: PathLike, *, verify: bool | None = None) -> Self:
        """Load a model of a graph from its file."""
        model = load_model(model_path(path), verify=verify)
        if not model.one_kind:
            raise ModelFileError(
                f"{path}: is a model of users and items, not of a graph; open it with Recommender.load."
            )
        recommender = with_parameters(cls, model.parameters | {"signed": bool(model.plan.signed)}, path)
        recommender._model = model
        return recommender


GraphRecommender.__doc__ = f"{cleandoc(GraphRecommender.__doc__ or '')}\n\n{described_parameters(GraphRecommender)}\n"
