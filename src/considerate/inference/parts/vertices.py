"""Settings of a fit to a graph whose vertices are of one kind. The paper's remarks name such graphs."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from considerate.inference.plan import SETTINGS as _ORIGINAL
from considerate.inference.plan import FitPlan, Parameters
from considerate.settings import check_setting, setting, varied


@dataclass(eq=False)
class GraphParameters:
    """All settings of a fit to a graph of vertices of one kind; `GraphRecommender` inherits these fields. The reasons
    rest on rankings of validation edges (docs/graphs.md)."""

    factors: int = varied(
        _ORIGINAL["factors"], 32, "64 ranked hidden edges about as well in twice the time", "length of the vectors (K)"
    )
    negatives: float = varied(
        _ORIGINAL["negatives"],
        10.0,
        "fewer ranked hidden edges worse on three graphs of four, more take longer",
        "pairs that were considered and not linked, for each edge (c); each end draws half of them",
        words=(),
    )
    signed: bool = setting(
        False,
        "let half of the coordinates repel, u'S u with signs: for graphs whose links are between unlike vertices",
        "in most graphs links are between like vertices",
    )
    consideration: str = varied(
        _ORIGINAL["consideration"],
        "walk",
        "hidden edges are ranked far better with the walk's lift where vertices have few edges",
        "where the edges without a link lead: to vertices that a walk of two to four steps meets (walk), or to "
        "vertices of many edges, the same for everyone (popularity)",
    )
    neighbours: int = varied(
        _ORIGINAL["neighbours"], 500, "as for likes", "entries kept of each vertex's row of the walk"
    )
    mixing: float | None = varied(
        _ORIGINAL["mixing"],
        None,
        "as for likes",
        "share of popularity that is mixed into the walk. If not given 0.05, or more where the walk tells much more "
        "than popularity does",
    )
    likelihood_weight: float = varied(
        _ORIGINAL["likelihood_weight"],
        3.0,
        "the vectors of sparse graphs collapse at 1.5; dense ones want no more than 3",
        "the power that the likelihood is raised to (rho); 1 is Bayes",
        words=(),
    )
    popularity: float | str = varied(
        _ORIGINAL["popularity"],
        0.3,
        "0 to 0.6 were best, by graph",
        "the weight of log popularity in the score. auto chooses it and lift by the AUC of a tenth of the edges held "
        "out, auto-top by their hits@50",
    )
    lift: float = varied(
        _ORIGINAL["lift"],
        1.2,
        "0.6 to 3 were best, by graph: more where vertices have few edges",
        "the weight of log lift: how much more likely than by popularity one end considers the other. It is chosen "
        "where popularity is",
        words=(),
    )
    sharpness: int = varied(
        _ORIGINAL["sharpness"],
        2,
        "1 was better on Cora, 2 on USAir",
        "the power that the walk's rows are raised to in log lift",
    )
    sweeps: int = varied(_ORIGINAL["sweeps"], 30, "fits stop by themselves")
    tolerance: float = varied(
        _ORIGINAL["tolerance"],
        0.002,
        "smaller ones did not rank better",
        "stop when the bound's relative change per sweep is below this; 0 never stops",
    )
    step_delay: int = varied(
        _ORIGINAL["step_delay"], 5, "10 ranked no better", "sweeps at full step before steps shrink (t_epsilon)"
    )
    precision_delay: int = varied(
        _ORIGINAL["precision_delay"], 3, "5 ranked no better", "sweeps before the precisions are learned (t_tau)"
    )
    prior_shape: float = varied(_ORIGINAL["prior_shape"], 0.01, "nearly flat: the data decides")
    prior_rate: float = varied(_ORIGINAL["prior_rate"], 0.01, "nearly flat: the data decides")
    seed: int = varied(_ORIGINAL["seed"], 0, "the same seed and data give the same bits")
    threads: int | None = varied(_ORIGINAL["threads"], None, "the result does not depend on it")

    def check(self) -> None:
        """Raise UsageError for the first setting outside its range."""
        for parameter in fields(self):
            check_setting(parameter, getattr(self, parameter.name))

    def plan(self) -> FitPlan:
        """Check and resolve the settings. Vertices have biases, and H is drawn from the first sweep on."""
        self.check()
        given = {parameter.name: getattr(self, parameter.name) for parameter in fields(self)}
        signed, walk = given.pop("signed"), given["consideration"] == "walk"
        if isinstance(given["popularity"], str) or not walk:
            given["lift"] = given["popularity"] if walk else None
        return replace(Parameters(**given, user_bias=True, opening=0).plan(), signed=signed)
