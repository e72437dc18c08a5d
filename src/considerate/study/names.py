"""Plain names of the metrics and scores, whose names in the results are short."""

from __future__ import annotations

import re

MEAN_RANK = "mean rank"
METRICS = {  # metric of the summary, in its order -> its name on the page
    "S_rank": MEAN_RANK,
    "S_rank tail": "mean rank, tail",
    "S_rank tail, for the tail": "mean rank, tail (ours tuned for it)",
    "Recall@20": "Recall@20",
    "NDCG@20": "NDCG@20",
    "NDCG@20, first places": "NDCG@20 (ours tuned for it)",
}
_NAMES = METRICS | {
    "S_rank, for the tail": "mean rank (ours tuned for the tail)",
    "Recall@20, first places": "Recall@20 (ours tuned for NDCG@20)",
    "considerate, default": "considerate, default settings",
    "considerate, first places": "considerate, tuned for NDCG@20",
    "considerate, for the tail": "considerate, tuned for the tail",
    "BPR-popularity, for the tail": "BPR-popularity, tuned for the tail",
    "pi": "popularity (pi)",
    "w": "walk (w)",
    "a": "taste (a)",
    "a + log w": "taste and walk (a + log w)",
}
EXPLAINED = {  # a term of the page -> its meaning
    "mean rank": "the share of unseen items that score below the held-out one, averaged over users: 1 is the top of "
    "the list, 0.5 is guessing (S_rank in the paper; ties count half)",
    "tail, head": "the tail is items with fewer than 100 likes in training; the head is the most liked items",
    "Recall@20": "the share of a user's held-out likes among the first 20 items",
    "NDCG@20": "like Recall@20, but a higher place counts more",
    "p(like)": "the probability that a user likes an item once the user has considered it",
    "popularity weight (the knob)": "the weight of the log of an item's popularity in its score; at 0, taste decides",
    "degree": "the number of likes of a user or an item in training",
    "paper: p(like)": "the paper's score 'like': its model ranked by p(like) alone",
    "paper: popularity x p(like)": "the paper's score 'popularity x like': p(like) times the item's popularity",
    "r": "the power of popularity by which the paper's model draws what users considered",
}


def rounded(words: str) -> str:
    """Round the decimal numbers in a text to three digits."""
    return re.sub(r"\d+\.\d+", lambda found: f"{float(found.group()):.3g}", words)


def plain_name(name: str) -> str:
    """Name of a metric, a score or a model on the page and in the figures."""
    match = re.fullmatch(r"(like|popularity x like)(, r = .*)", name)
    if match:
        return f"paper: {match[1].replace('like', 'p(like)')}{match[2]}"
    return _NAMES.get(name, name)
