"""Answers of a fitted recommender. Users and items are named by the ids of the data, see names.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Unpack, overload

import numpy as np
from numpy.typing import NDArray

from considerate.data import ReaderOptions
from considerate.data.read_features import read_more
from considerate.errors import UsageError
from considerate.inference.posterior import Side
from considerate.model.changes import folded_users, with_cold_items, with_items, with_users
from considerate.model.explain import Explanation, explain, similar_items, similar_users
from considerate.model.find import FoundItem, find_items
from considerate.model.index import PROBES, ItemIndex
from considerate.model.learned import Learned
from considerate.model.names import By, IdArray, One, Ranked, Several
from considerate.model.ranking import RankingKeywords, RankingOptions
from considerate.model.serving import Ranker, item_vectors, recommend_lists, user_vectors
from considerate.model.tables import Recommendations, recommendation_batches, recommendations_for_likes
from considerate.storage.files import PathLike

if TYPE_CHECKING:
    from typing import Self

    import pyarrow

Named = One | Several  # one or several users, or items
Floats = NDArray[np.float32]


class Answers(Learned):
    """Methods that query a fitted model, and methods that add users and items to it.

    Arguments and answers have the ids of the data. The ids of a matrix are its row numbers, and with by="row" every
    model takes and gives row numbers. Likes are a list of ids, for several users or items a list of such lists, or a
    scipy sparse matrix in the order of `user_ids()` and `item_ids()`.
    """

    threads: int | None

    # --- Ids, rows and titles ---

    def user_ids(self, rows: Named | None = None) -> IdArray:
        """Ids of users by row number, or of all users; ids of a matrix are the row numbers."""
        return self.model_.user_names().at(rows)

    def item_ids(self, rows: Named | None = None) -> IdArray:
        """Ids of items by row number, or of all items; ids of a matrix are the row numbers."""
        return self.model_.item_names().at(rows)

    def user_rows(self, ids: Named) -> NDArray[np.int64]:
        """Row numbers of users by id."""
        return self.model_.user_names().rows(ids)

    def item_rows(self, ids: Named) -> NDArray[np.int64]:
        """Row numbers of items by id: their place in `item_factors`, `popularity_` and `export_vectors`."""
        return self.model_.item_names().rows(ids)

    def titles(self, items: Named, *, by: By = "id") -> list[str]:
        """Titles of items; the id of an item without a title."""
        model = self.model_
        return [model.title(row) for row in model.item_names(by).rows(items).reshape(-1).tolist()]

    def find(self, text: str, N: int = 10, *, by: By = "id") -> list[FoundItem]:
        """Find the N items whose titles match a text best: (item, title, likes). Case, accents and punctuation do not
        matter.

        Titles equal to the text come first, then titles that begin with it, then titles with a word that begins with
        it, then titles that have it somewhere; among these the most liked. An item without a title is found by its id.
        """
        return find_items(self.model_, text, N, by)

    # --- Probabilities of pairs ---

    @overload
    def predict_logit(self, users: One, items: One, *, by: By = "id") -> tuple[float, float]: ...
    @overload
    def predict_logit(self, users: Named, items: Several, *, by: By = "id") -> tuple[Floats, Floats]: ...
    @overload
    def predict_logit(self, users: Several, items: Named, *, by: By = "id") -> tuple[Floats, Floats]: ...
    def predict_logit(self, users: Named, items: Named, *, by: By = "id") -> tuple[float | Floats, float | Floats]:
        """Mean and standard deviation of the logit of pairs, on the fair-coin scale; as many users as items, or one."""
        model = self.model_
        return model.pair_logits(model.user_names(by).rows(users), model.item_names(by).rows(items))

    @overload
    def predict_proba(self, users: One, items: One, *, recalibrated: bool = True, by: By = "id") -> float: ...
    @overload
    def predict_proba(self, users: Named, items: Several, *, recalibrated: bool = True, by: By = "id") -> Floats: ...
    @overload
    def predict_proba(self, users: Several, items: Named, *, recalibrated: bool = True, by: By = "id") -> Floats: ...
    def predict_proba(self, users: Named, items: Named, *, recalibrated: bool = True, by: By = "id") -> float | Floats:
        """p(like | considered) of pairs (eq. 22), recalibrated if the model was, unless `recalibrated` is False."""
        model = self.model_
        rows = model.user_names(by).rows(users), model.item_names(by).rows(items)
        probabilities: float | Floats = model.pair_probabilities(*rows, recalibrated)
        return probabilities

    @overload
    def predict_interval(
        self, users: One, items: One, *, interval: str = "structural", by: By = "id"
    ) -> tuple[float, float]: ...
    @overload
    def predict_interval(
        self, users: Named, items: Several, *, interval: str = "structural", by: By = "id"
    ) -> tuple[Floats, Floats]: ...
    @overload
    def predict_interval(
        self, users: Several, items: Named, *, interval: str = "structural", by: By = "id"
    ) -> tuple[Floats, Floats]: ...
    def predict_interval(
        self, users: Named, items: Named, *, interval: str = "structural", by: By = "id"
    ) -> tuple[float | Floats, float | Floats]:
        """90 % interval (low, high) of p(like) of pairs. With interval="posterior" it has the posterior's variance
        alone, as in the paper."""
        model = self.model_
        ends: tuple[float | Floats, float | Floats] = model.pair_intervals(
            model.user_names(by).rows(users), model.item_names(by).rows(items), interval
        )
        return ends

    # --- Recommendations ---

    def recommend(
        self,
        userid: Named,
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
        diversity: float = 0.0,
        categories: Any = None,
        most_per_category: int | None = None,
        allow_impossible: bool = False,
        by: By = "id",
    ) -> Ranked:
        """Recommend the N best items: (ids, scores), with the signature of implicit.

        `userid` is one user or several. `user_items` are the likes to filter out and to compute lift from (the likes of
        the training if not given), and with `recalculate_user` to fold in. `filter_items` are never recommended; with
        `items`, only these items are recommended. The score is the mean logit + `popularity` * log pi + `lift` *
        log(w / pi), with w the chance that the user considers the item, or one of the paper's (`score="like"`,
        `"popularity"`, `"popularity_x_like"`), or the reported p(like) (`"p_like"`). The default weights are the
        model's own.

        `explore_kappa` adds standard deviations of the logit, `thompson_seed` draws the logits. With an `index` of
        `build_index` only items near the user are searched, so some items of the list may be missed. `diversity`, from
        0 to 1, chooses items unlike each other from the best few hundred. At most `most_per_category` items are chosen
        from each of the `categories`, a dict or a table by item. Pairs given to the fit as impossible are left out
        unless `allow_impossible`. One user gets a list that may be shorter than N; for several users, a short row ends
        in id -1 (None if ids are texts) and score NaN. `by="row"` names users and items by row number.
        """
        options = RankingOptions(
            popularity=popularity,
            lift=lift,
            score=score,
            filter_already_liked_items=filter_already_liked_items,
            allow=items,
            deny=filter_items,
            explore_kappa=explore_kappa,
            thompson_seed=thompson_seed,
            index=index,
            diversity=diversity,
            categories=categories,
            most_per_category=most_per_category,
            allow_impossible=allow_impossible,
        )
        ranker = Ranker(self.model_, options, N, by)
        return recommend_lists(ranker, userid, user_items, N, recalculate_user, self.threads)

    def recommend_table(
        self,
        users: Any = None,
        N: int = 10,
        *,
        options: RankingOptions | None = None,
        by: By = "id",
        **ranking: Unpack[RankingKeywords],
    ) -> Recommendations:
        """Recommend in a table: user, rank, item, title (if the model has titles), p_like, low, high (its 90 %
        interval), p_considered, score, cold. `to_pandas()`, `to_polars()` and `to_arrow()` make it a data frame.

        `users` is one, several, or None for all. Options of the ranking are keywords: popularity, lift, score, cold,
        filter_already_liked_items, allow_impossible, allow, deny (items), explore_kappa, thompson_seed, index,
        diversity, categories, most_per_category, interval ("structural", or the paper's "posterior"); or `options` is
        RankingOptions with them. A user who is unknown, or liked nothing, raises an error (with None for all, users
        without likes are left out). With `cold="popular"` such users get popular items and a true value in `cold`.
        """
        import pyarrow as pa

        return Recommendations(
            pa.Table.from_batches(self.recommend_batches(users, N, options=options, by=by, **ranking))
        )

    def recommend_batches(
        self,
        users: Any = None,
        N: int = 10,
        *,
        options: RankingOptions | None = None,
        batch: int = 16_384,
        by: By = "id",
        **ranking: Unpack[RankingKeywords],
    ) -> Iterator[pyarrow.RecordBatch]:
        """Yield the batches of `recommend_table`, some users at a time."""
        ranker = Ranker(self.model_, RankingOptions.choose(options, **ranking), N, by)
        return recommendation_batches(ranker, users, batch=batch, threads=self.threads)

    def recommend_for(
        self,
        likes: Any,
        N: int = 10,
        *,
        considered: Any = (),
        user_features: Any = None,
        options: RankingOptions | None = None,
        by: By = "id",
        **ranking: Unpack[RankingKeywords],
    ) -> Recommendations:
        """Recommend in a table for a user who was not in training, from items that the user likes and items that the
        user considered and did not like; `user` is null.

        `user_features` is a table of one row with the columns of the fit's, or a matrix; the likes may then be [].
        """
        ranker = Ranker(self.model_, RankingOptions.choose(options, **ranking), N, by)
        return recommendations_for_likes(ranker, likes, considered, user_features)

    def fold_in(self, items: Any, *, considered: Any = None, user_features: Any = None, by: By = "id") -> Side:
        """Infer the posterior of users who were not in training, from items that they like and, if given, from items
        that they considered and did not like, in the same form, and from features, a row for each."""
        model, names = self.model_, self.model_.item_names(by)
        shown = None if considered is None else names.likes(considered)
        return folded_users(model, names.likes(items), shown, user_features)

    # --- Similar users and items, and explanations ---

    def similar_items(
        self,
        itemid: Named,
        N: int = 10,
        recalculate_item: bool = False,
        item_users: Any = None,
        filter_items: Any = None,
        items: Any = None,
        *,
        by: By = "id",
    ) -> Ranked:
        """Find the N items with the largest cosine of mean vectors with this one, itself first: (ids, cosines).

        With `recalculate_item`, this one is folded in from the users who liked it, one row of `item_users` per item.
        """
        model, liked_by = self.model_, None
        if recalculate_item:
            if item_users is None:
                raise UsageError("recalculate_item needs item_users, the users who liked each item, one row an item.")
            liked_by = model.user_names(by).likes(item_users)
        return similar_items(model, itemid, N, liked_by, allowed=items, denied=filter_items, by=by)

    def similar_users(
        self, userid: Named, N: int = 10, filter_users: Any = None, users: Any = None, *, by: By = "id"
    ) -> Ranked:
        """Find the N users with the largest cosine of mean vectors with this one, itself first: (ids, cosines)."""
        return similar_users(self.model_, userid, N, allowed=users, denied=filter_users, by=by)

    def explain(self, userid: One, itemid: One, user_items: Any = None, N: int = 10, *, by: By = "id") -> Explanation:
        """Explain a pair: p(like), and the user's items that moved the logit most; attributes explain p(considered)."""
        return explain(self.model_, userid, itemid, user_items, N, by)

    # --- Vectors of all, in the order of user_ids() and item_ids() ---

    def export_vectors(self, popularity: float | None = None) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """(users [M, K + 2], items [N, K + 2]) for a vector store: their inner product is the score without lift.

        Row i belongs to `user_ids()[i]`, and to `item_ids()[i]`. Lift depends on the user's likes and the item
        together, so no inner product of K + 2 coordinates has it. With lift in the score, retrieve some hundreds of
        items by the vectors and rank these with `recommend(..., items=...)`.

        The item's bias and `popularity` * log pi are its last two coordinates, against ones of the user. With user
        biases there is a third, the user's bias against a one of the item.
        """
        return user_vectors(self.model_.users.whole().side), item_vectors(self.model_, popularity)

    def build_index(self, lists: int | None = None, probes: int = PROBES) -> ItemIndex:
        """Make an index of the items, for `recommend(user, index=...)` of single users in large catalogues.

        Items are cut into `lists` of near items, 4 sqrt(items) if not given; a request searches `probes` of them.
        `ItemIndex.save(path)` writes it to a file. It needs faiss: `pip install considerate[ann]`.
        """
        return ItemIndex.of(self.model_, lists, probes)

    def load_index(self, path: PathLike, probes: int = PROBES) -> ItemIndex:
        """Load the index of this model from its file; the index of another model is refused."""
        return ItemIndex.load(path, self.model_, probes)

    # --- Users and items updated or added ---

    def add_items(self, features: Any, *, titles: Any = None, id_column: str | None = None) -> Self:
        """Add items that nobody has liked yet, by their features alone: a table with the columns of the fit's.

        Their vectors are the average for such features, with the matching variance. Their popularity is predicted, too.
        Items with likes stay as they are. `titles` is a table of ids and titles, or a dict. For a model fitted on
        matrices, `features` is a matrix of the new rows.
        """
        weights = self.model_.item_features
        table = features if weights is None else read_more(features, "item", weights.features, id_column)
        self._model = with_cold_items(self.model_, table, ReaderOptions(titles=titles, item_column="item"))
        return self

    def partial_fit_users(self, userids: Named, user_items: Any, *, by: By = "id") -> Self:
        """Update or add users from their likes, with the items held fixed; row i of user_items belongs to userids[i].

        New ids go into the sorted ids of the model, so that row numbers after them change.
        """
        self._model = with_users(self.model_, userids, user_items, by)
        return self

    def partial_fit_items(self, itemids: Named, item_users: Any, *, by: By = "id") -> Self:
        """Update or add items from their users, with the users held fixed; row i of item_users belongs to itemids[i].

        New ids go into the sorted ids of the model, so that row numbers after them change.
        """
        self._model = with_items(self.model_, itemids, item_users, by)
        return self
