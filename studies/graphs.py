"""Hidden edges of graphs whose vertices are of one kind: AUC and hits@50, beside common neighbours, Adamic-Adar,
resource allocation, Katz and implicit's ALS.

    python -m studies.graphs
    python -m studies.graphs --graphs USAir cora --splits 2
    python -m studies.graphs --expected --graphs USAir cora ego-facebook

A tenth of the edges is hidden, several times. AUC is the chance that a hidden edge scores above one of 100,000 pairs
without an edge, hits@50 the share of hidden edges above the 50th best of these. What has to be chosen (the weights of
our score, Katz's beta, ALS's factors, regularisation and confidence) is chosen on a tenth of the edges that are left,
by AUC or by hits@50. No test edge is read before. Differences are of our score chosen by the same metric, paired, with
95 % intervals over the splits.

With `--expected` nothing is hidden: the links that the model expects over those that there are, by the degree of the
vertex, for several c.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from itertools import pairwise, product
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy import stats

from considerate import GraphRecommender
from considerate.data import ReaderOptions
from considerate.data.edges import read_edges, symmetric
from considerate.data.graph import Adjacency
from considerate.evaluation.links import METRICS, LinkTest, Pairs, edge_pairs, hide_edges
from considerate.fitting.vertices import LIFTS, POPULARITIES
from considerate.inference.hidden.merged import either
from considerate.inference.parts.vertices import GraphParameters
from considerate.model.considered import considered_probability, vertex_draws
from considerate.model.liking import sigmoid
from considerate.model.links import link_parts
from considerate.model.model import Model
from studies.options import study_parser

GRAPHS = {
    "ego-facebook": "graphs/ego-facebook.parquet",
    "cora": "graphs/cora.parquet",
    "USAir": "graphs/USAir.parquet",
    "Email-Enron": "graphs/Email-Enron.parquet",
    "lastfm-friends": "hetrec2011-lastfm-2k/friends.parquet",
}
HIDDEN = 0.1
ALS = tuple(
    (factors, *rest) for factors in (16, 32, 64) for rest in ((1.0, 1.0), (10.0, 40.0))
)  # regularisation, confidence
KATZ = (0.1, 0.5, 0.9)  # beta times the largest eigenvalue
DEGREES, NEGATIVES = (1, 2, 5, 10, 20, 50, 100), (1.0, 5.0, 10.0)  # of expected links
Scores = NDArray[np.float64]


def expected_links(model: Model) -> Scores:
    """Expected number of links of each vertex: the sum of p(considered) p(link) over all others.

    A link has the chance of being drawn that it would have if its pair were open. All pairs are in memory at once.
    """
    vertices, expected = np.flatnonzero(model.item_degree), np.zeros(model.item_count)
    draws = vertex_draws(model, model.users.whole().liked.take(vertices), model.limits_of(vertices))
    drawn = draws.chances.of_all(draws.edges, draws.counts, draws.itself)[:, vertices]
    weights = either(drawn, drawn.T) * np.exp(model.plan.offset)
    for row, vertex in enumerate(vertices):
        mean = np.asarray(model.pair_logits(np.minimum(vertex, vertices), np.maximum(vertex, vertices))[0], np.float64)
        expected[vertex] = (considered_probability(weights[row], mean) * sigmoid(mean)).sum()
    return expected


def matrix(pairs: Pairs, vertices: int) -> sp.csr_matrix:
    """The symmetric adjacency of pairs."""
    edges = symmetric(*pairs, vertices)
    return sp.csr_matrix((np.ones(edges.edges), edges.indices, edges.starts), (vertices, vertices))


def inner(first: sp.csr_matrix, second: sp.csr_matrix, test: LinkTest) -> Scores:
    """The inner products of rows of two matrices, pair by pair."""
    parts = []
    for start in range(0, len(test.first), 4096):
        here = slice(start, start + 4096)
        parts.append(np.asarray(first[test.first[here]].multiply(second[test.second[here]]).sum(axis=1)).reshape(-1))
    return np.concatenate(parts)


def neighbours(edges: sp.csr_matrix, test: LinkTest) -> dict[str, Scores]:
    """Scores by the neighbours that two vertices share."""
    degrees = np.asarray(edges.sum(axis=1)).reshape(-1)
    weights = {
        "common neighbours": np.ones_like(degrees),
        "Adamic-Adar": 1.0 / np.log(np.maximum(degrees, 2.0)),
        "resource allocation": 1.0 / np.maximum(degrees, 1.0),
    }
    return {name: inner(edges, (edges @ sp.diags(weight)).tocsr(), test) for name, weight in weights.items()}


def katz(edges: sp.csr_matrix, test: LinkTest) -> Callable[[float], Scores]:
    """The sum over paths of up to four steps, each of weight beta to the power of its length."""
    largest = float(sp.linalg.eigsh(edges, 1, return_eigenvectors=False, v0=np.ones(edges.shape[0]))[0])
    two = (edges @ edges).tocsr()
    paths = [inner(edges, edges, test), inner(two, edges, test), inner(two, two, test)]
    return lambda share: sum(((share / largest) ** (2 + at) * count for at, count in enumerate(paths)), np.zeros(1))


def als(edges: sp.csr_matrix, test: LinkTest) -> Callable[[tuple[int, float, float]], Scores]:
    """implicit's ALS on the adjacency, x_m'y_n + x_n'y_m."""
    from implicit.als import AlternatingLeastSquares

    def scores(setting: tuple[int, float, float]) -> Scores:
        factors, regularization, confidence = setting
        model = AlternatingLeastSquares(factors, regularization=regularization, random_state=0, num_threads=0)
        model.fit((edges * confidence).astype(np.float32), show_progress=False)
        x, y = model.user_factors, model.item_factors
        m, n = test.first, test.second
        return np.einsum("ik,ik->i", x[m], y[n]) + np.einsum("ik,ik->i", x[n], y[m])

    return scores


def ours(edges: sp.csr_matrix, test: LinkTest) -> Callable[[tuple[float, float]], Scores]:
    """Our score by the weights of popularity and lift."""
    logit, log_pi, lift = link_parts(GraphRecommender().fit(edges).model_, test.first, test.second)
    return lambda weights: logit + weights[0] * log_pi + weights[1] * lift


MODELS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "score": (ours, tuple(product(POPULARITIES, LIFTS))),
    "ALS (implicit)": (als, ALS),
    "Katz": (katz, KATZ),
}


def one_split(whole: Adjacency, seed: int) -> dict[str, dict[str, float]]:
    """Every metric of every score, with a tenth of the edges hidden."""
    kept, hidden = hide_edges(whole, HIDDEN, seed)
    less, held = hide_edges(symmetric(*kept, whole.rows), HIDDEN, seed + 100)
    test, validation = LinkTest.of(hidden, whole, seed), LinkTest.of(held, whole, seed + 100)
    edges, fewer = matrix(kept, whole.rows), matrix(less, whole.rows)
    scores: dict[str, Scores] = {}
    for name, (make, choices) in MODELS.items():
        tried, scores_of = make(fewer, validation), make(edges, test)
        values = {choice: tried(choice) for choice in choices}
        if name == "score":
            scores["p(link), if considered"] = scores_of((0.0, 0.0))
            scores["score, default weights"] = scores_of((GraphParameters.popularity, GraphParameters.lift))
        for metric in METRICS:
            best = max(choices, key=lambda choice: validation.value(values[choice], metric))
            scores[f"{name}, by {metric}"] = scores_of(best)
    scores |= neighbours(edges, test)
    return {name: {metric: test.value(s, metric) for metric in METRICS} for name, s in scores.items()}


def interval(values: list[float]) -> str:
    """The mean, and half of its 95 % interval by Student's t."""
    mean = float(np.mean(values))
    if len(values) < 2:
        return f"{mean:+.4f}"
    half = float(stats.t.ppf(0.975, len(values) - 1) * stats.sem(values))
    return f"{mean:+.4f} ± {half:.4f}"


def show(name: str, whole: Adjacency, splits: list[dict[str, dict[str, float]]]) -> None:
    print(f"\n### {name}: {whole.rows:,} vertices, {whole.edges // 2:,} edges, {len(splits)} splits\n")
    print("| | AUC | hits@50 | AUC: ours less this | hits@50: ours less this |\n|---|---|---|---|---|")
    for score in splits[0]:
        cells = []
        for metric in METRICS:
            cells.append(f"{np.mean([found[score][metric] for found in splits]):.4f}")
        for metric in METRICS:
            best = f"score, by {metric}"
            less = [found[best][metric] - found[score][metric] for found in splits]
            cells.append("" if score == best else interval(less))
        print(f"| {score} | {' | '.join(cells)} |", flush=True)


def show_expected(name: str, whole: Adjacency) -> None:
    """Print expected over observed links, by degree."""
    graph, degree = matrix(edge_pairs(whole), whole.rows), whole.degrees
    place = np.digitize(degree, DEGREES) - 1
    there = [at for at in range(len(DEGREES)) if (place == at).any()]
    ends = [f" to {high - 1}" if high - low > 1 else "" for low, high in pairwise(DEGREES)] + [" and more"]
    heads = [f"{DEGREES[at]}{ends[at]}" for at in there]
    print(f"\n### {name}: expected over observed links\n")
    print(f"| c | pairs without a link, for each link | all | {' | '.join(heads)} |\n|{'---|' * (len(there) + 3)}")
    for c in NEGATIVES:
        model = GraphRecommender(negatives=c).fit(graph).model_
        expected = expected_links(model)
        shares = [f"{expected[place == at].sum() / degree[place == at].sum():.2f}" for at in there]
        unlinked, total = model.plan.unlinked, expected.sum() / degree.sum()
        print(f"| {c:g} | {unlinked:.2f} | {total:.2f} | {' | '.join(shares)} |", flush=True)


def main() -> None:
    parser = study_parser(__doc__)
    parser.add_argument("--graphs", nargs="+", choices=GRAPHS, default=list(GRAPHS))
    parser.add_argument("--splits", type=int, help="5 if not given, 3 of graphs of over 50,000 edges")
    parser.add_argument("--expected", action="store_true", help="expected over observed links, and no ranking")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in arguments.graphs:
        data = read_edges(arguments.data / GRAPHS[name], ReaderOptions())
        whole = symmetric(data.users, data.items, len(data.item_ids))
        if arguments.expected:
            show_expected(name, whole)
            continue
        count = arguments.splits or (3 if len(data.users) > 50_000 else 5)
        show(name, whole, [one_split(whole, seed) for seed in range(count)])


if __name__ == "__main__":
    main()
