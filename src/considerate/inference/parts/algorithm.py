"""Settings of Algorithm 1: size of the vectors, steps, priors and when a fit ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from considerate.inference.parts.base import Part, Where
from considerate.inference.parts.closed_form import opening_of
from considerate.settings import AUTO, OrUnset, OrWord, setting, settings_group


def _tolerance(given: Any) -> float:
    """Default tolerance: smaller for draws without an opening, as their bound is noisy."""
    return 5e-4 if given.hidden != "expected" and not opening_of(given) else 2e-3


@settings_group
class AlgorithmSettings:
    """Settings of Algorithm 1 itself."""

    factors: int = setting(
        64,
        "length of the user and item vectors (K)",
        "64 rank better than 32 on MovieLens-1M and anime; 128 take a multiple of the time",
        low=1,
        high=4096,
        integer=True,
        paper=20,
        place=0,
        stored="factors",
        before=20,
    )
    likelihood_weight: OrUnset[OrWord[float]] = setting(
        None,
        "the power that the likelihood is raised to (rho); 1 is Bayes, auto tries some on likes held out. 1.5 if not "
        "given",
        "a factorised posterior shrinks vectors too much, and 1.5 to 2 undoes that. It is tuned, not learned, and "
        "sparser data wants more",
        above=0,
        high=100,
        words=(AUTO,),
        paper=1.0,
        place=13,
        resolve=lambda given: 1.5,
        tries=lambda plan: (1.0, 2.0, 4.0, 8.0),
        stored="weight",
        before=1.0,
    )
    user_bias: bool = setting(
        False,
        "whether users have biases; the paper clamps them at zero",
        "a user's bias changes no order within that user's list",
        place=17,
        stored="user_bias",
        before=False,
    )
    sweeps: int = setting(
        30,
        "at most so many sweeps",
        "fits stop by themselves after 13 or 14 on the data sets of docs/quality.md",
        low=1,
        high=100_000,
        integer=True,
        place=21,
        free=True,
    )
    tolerance: OrUnset[float] = setting(
        None,
        "stop when the bound's relative change per sweep is below this; 0 never stops. 0.002 if not given, 0.0005 "
        "where hidden is sampled without an opening",
        "the bound of draws without an opening is noisy, and more sweeps average over more draws",
        low=0,
        high=1,
        paper=5e-4,
        place=22,
        resolve=_tolerance,
        free=True,
    )
    step_delay: OrUnset[int] = setting(
        None,
        "sweeps at full step before steps shrink (t_epsilon). If not given those of the opening, 10 without one",
        "after an opening the posterior is nearly there, so steps shrink from the third draw on",
        low=0,
        high=100_000,
        integer=True,
        paper=10,
        place=23,
        resolve=lambda given: opening_of(given) or 10,
        stored="step_delay",
        before=10,
    )
    precision_delay: OrUnset[int] = setting(
        None,
        "sweeps before the precisions are learned (t_tau). 5 if not given, 2 where hidden is expected",
        "10 was no better than 5",
        low=0,
        high=100_000,
        integer=True,
        paper=5,
        place=24,
        resolve=lambda given: 2 if given.hidden == "expected" else 5,
        stored="precision_delay",
        before=5,
    )
    prior_shape: float = setting(
        0.01,
        "alpha of the precisions' Gamma prior",
        "nearly flat: the data decides",
        above=0,
        high=1e6,
        place=25,
        stored="prior_shape",
        before=0.01,
    )
    prior_rate: float = setting(
        0.01,
        "beta of the precisions' Gamma prior",
        "nearly flat: the data decides",
        above=0,
        high=1e6,
        place=26,
        stored="prior_rate",
        before=0.01,
    )
    seed: int = setting(
        0,
        "seed of every draw",
        "the same seed and data give the same bits",
        low=0,
        high=2**63 - 1,
        integer=True,
        place=27,
        stored="seed",
        before=0,
    )
    threads: int | None = setting(
        None,
        "threads; as many as there are processors if not given",
        "the result does not depend on it",
        low=1,
        high=4096,
        integer=True,
        place=28,
        free=True,
    )


class AlgorithmPart(Part):
    """Algorithm 1."""

    settings = AlgorithmSettings

    def refusals(self, request: Any, where: Where) -> Iterator[str]:
        if where.divided and request.plan.tuned:
            yield (
                f"{' and '.join(sorted(request.plan.tuned))} can be chosen on likes held out only where the graph is "
                "in memory; give numbers, such as those that a fit to a sample of the users chooses."
            )
        if where.inner_sweeps == 1:
            return
        from considerate.kernels import compiled

        if len(compiled.coordinate_blocks(request.plan.factors)) > 1:
            yield (
                f"inner_sweeps is {where.inner_sweeps} and factors is {request.plan.factors}; inner sweeps need at "
                "most 64 factors."
            )
