"""Full posteriors: covariances of rows, full priors and quadrature. The paper's remarks name them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from considerate.inference.parts.base import Part, Where
from considerate.settings import OrUnset, setting, settings_group


@settings_group
class FullSettings:
    """Posteriors with covariances, full priors and quadrature."""

    posterior: str = setting(
        "factorised",
        "the shape of a vector's posterior: independent coordinates (factorised, the paper's), or with covariances of "
        "items (full-items) or of items and users (full), which take K / 4 times the memory of such a row. hidden must "
        "be sampled with these",
        "covariances rank a little better and take five times the time or more; only logistic='quadrature' "
        "gives intervals their nominal coverage",
        words=("factorised", "full-items", "full"),
        place=18,
        idle=lambda plan, given: plan.posterior == "factorised",
    )
    prior: str = setting(
        "gamma",
        "the hyperprior of the vectors: one learned precision for each side around zero (gamma), or a learned mean and "
        "a full precision matrix (wishart). hidden must be sampled with the latter",
        "wishart ranked ml-100k better and MovieLens-1M no better, in six times the time",
        words=("gamma", "wishart"),
        place=19,
        idle=lambda plan, given: plan.prior == "gamma",
    )
    logistic: OrUnset[str] = setting(
        None,
        "how the likelihood of a coin is averaged over the posterior: by the paper's lower bound (bound), which makes "
        "intervals too narrow, or by quadrature, whose intervals have their nominal coverage if H is known. If not "
        "given bound where the posterior is factorised, else quadrature. hidden must be sampled with the latter",
        "the bound is faster, has a closed form, and never falls",
        words=("bound", "quadrature"),
        paper="bound",
        place=20,
        resolve=lambda given: "bound" if given.posterior == "factorised" else "quadrature",
        idle=lambda plan, given: plan.logistic == "bound",
    )


USUAL = {"posterior": "factorised", "prior": "gamma", "logistic": "bound"}


class FullPart(Part):
    """Part: rows stepped with covariances, a full prior or quadrature."""

    settings = FullSettings

    def contradictions(self, given: Any) -> Iterator[str]:
        unusual = [name for name, usual in USUAL.items() if getattr(given, name) not in (usual, None)]
        if unusual and given.hidden == "expected":
            yield (
                f"{unusual[0]} is {getattr(given, unusual[0])!r} and hidden is 'expected', whose closed form has the "
                "logistic bound of a factorised posterior in it: set hidden='sampled'."
            )

    def refusals(self, request: Any, where: Where) -> Iterator[str]:
        plan = request.plan
        if not plan.is_full:
            return
        if where.divided:
            yield (
                f"posterior is {plan.posterior!r}, prior {plan.prior!r} and logistic {plan.logistic!r}; all but "
                "'factorised', 'gamma' and 'bound' are fitted in memory alone, as parts send the sums of a factorised "
                "posterior. Leave them out, or fit in memory."
            )
        if request.side.has_features:
            yield (
                f"posterior is {plan.posterior!r}, prior {plan.prior!r}, logistic {plan.logistic!r}, and features are "
                "given; features go with 'factorised', 'gamma' and 'bound' alone: leave out either."
            )
