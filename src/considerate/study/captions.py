"""The sections of the page: each figure's title, what it shows, and how to read it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Section:
    """One section of the page."""

    name: str  # of the figure
    title: str
    shows: str
    read: str
    paper: str | None = None  # which figure of the paper it is


SECTIONS = (
    Section(
        "differences",
        "Beside what you may use now",
        "Ours minus each peer on the same held-out likes, paired by user, with 95 % intervals by bootstrap over "
        "users. Every peer had the same number of trials on a validation split.",
        "Right of the line, ours is better. Where a bar crosses the line, these data cannot tell the two apart.",
    ),
    Section(
        "differences-by-degree",
        "Where it is ahead",
        "Mean S_rank of ours minus each peer's in strata of the item's degree, paired on the same held-out likes,"
        " with 95 % intervals; above at the knob that validation chose, below at 0. The scale is linear near zero"
        " and logarithmic beyond. Strata of fewer than ten likes are left to the table.",
        "Above the line, ours is better there: on the left in the tail of the catalogue, on the right in its head.",
    ),
    Section(
        "mean-ranks",
        "Mean rank by degree",
        "Mean S_rank of held-out likes: the share of the items new to a user that score lower than the held-out "
        "one (ties count half), in logarithmic bins of the user's degree (top) and of the item's (bottom). Bands "
        "are 95 % intervals; the grey bars count the held-out likes in each bin. Bins of fewer than ten are left "
        "to the table, here and below.",
        "Higher is better, and guessing gives 0.5. The top panel says for whom it ranks well, the bottom one in "
        "which part of the catalogue: on the left the tail, on the right the head. A score that leans on "
        "popularity rises steeply.",
        "figure 6",
    ),
    Section(
        "percentiles",
        "The spread of the ranks",
        "Percentiles of S_rank in the same bins: half of the held-out likes are inside the dark band, 90 % inside"
        " the light one; the line is the median, the dashed line the mean.",
        "A median above the mean says that most likes are ranked well and a few very badly.",
        "figure 7",
    ),
    Section(
        "errors",
        "Is a held-out like called a like?",
        "The share of held-out likes with p(like) below one half, by the user's degree; bands are 95 % intervals,"
        " and the grey bars count the likes.",
        "Lower is better. A user of few likes is unknown, so p(like) is near one half and the error near a "
        "coin's. The grey stripe is what the paper saw from ten to twenty items on.",
        "figure 4",
    ),
    Section(
        "histograms",
        "p(like) of held-out likes",
        "A histogram of p(like) in each row, for users of so many likes; darker is more. The line is the row's "
        "mean; rows of fewer than ten are blank.",
        "All of these are likes, so mass on the right of one half is right. It moves there as users are known better.",
        "figure 5",
    ),
    Section(
        "reliability",
        "Is p(like) honest?",
        "Pairs that are known to have been considered, liked or not, in ten equal bins of p(like): what was "
        "predicted against the share that did like, with both classes weighed equally. Below: how many pairs each"
        " bin holds.",
        "On the diagonal, of the pairs given 70 % seventy in a hundred are liked. A flatter curve is too bold, a "
        "steeper one too timid. The error is the expected calibration error: the mean distance from the diagonal.",
    ),
    Section(
        "knob",
        "What the knob does",
        "Items are ranked by the logit of p(like) plus the weight times the log of popularity. Against the "
        "weight: mean S_rank of all held-out likes and of those whose item has a degree under 100 (the tail), "
        "Recall@20, the share of the catalogue that is in someone's first 20, and the mean degree of what is in "
        "these lists. Markers: the weight chosen on validation.",
        "At 0 the order is by taste alone; to the right it leans on popularity, which helps the mean and costs "
        "the tail and the variety.",
    ),
    Section(
        "times",
        "Quality against time",
        "Mean S_rank and Recall@20 on validation against seconds of fitting on this machine.",
        "Higher and further left is better. What is counted rather than fitted is a level line.",
    ),
    Section(
        "traces",
        "The fit, sweep by sweep",
        "The bound, in per cent of its best (the first sweeps may be below the panel), the expected precisions, "
        "the spread of the logits that they imply, and mean S_rank on validation. Filled markers at the right "
        "edge are the paper's E[tau].",
        "A bound that is flat says that the fit has settled. Precisions that keep rising with a spread that falls"
        " to nothing would mean that the vectors collapse.",
    ),
    Section(
        "degrees",
        "Degrees and their laws",
        "How many users and items have a degree, in logarithmic bins per unit of degree, with the law fitted by "
        "maximum likelihood.",
        "A straight line is a power law; a bend downwards is a cut-off.",
        "figure 1",
    ),
    Section(
        "balance",
        "Positives to negatives",
        "In one drawn H, each item's likes over its drawn negatives, against its degree; squares are bins, "
        "triangles at the top are items without a negative.",
        "At r = 1 the ratio should be one at every degree; below one, r makes popular items look better liked. A "
        "rise at the right end that the head correction takes away comes from drawing without replacement.",
        "figure 3",
    ),
    Section(
        "hidden-degrees",
        "Degrees of a drawn H",
        "The degrees of a hidden graph H as drawn in the fit, beside those of the graph G that was seen.",
        "H should be of the same kind as G, only larger.",
    ),
)
