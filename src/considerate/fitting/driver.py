"""Driver of a fit, from data to model, for every backend.

source -> session -> runner -> sweeps until the bound settles -> model
                       ^                    |
                  checkpoint  <-----  every few sweeps
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from dataclasses import replace

from considerate.errors import DivergedError
from considerate.fitting.memory import translate_memory_errors
from considerate.fitting.resume import chosen_settings, open_checkpoints
from considerate.fitting.session import FitBackend, FitRequest, FitSession
from considerate.fitting.stopping import (
    MOST_RECENT,
    FitProgress,
    FitStep,
    has_converged,
    held_interrupts,
    sweep_until_settled,
    window_of,
)
from considerate.inference.parts import Where, refuse
from considerate.inference.posterior import Posterior
from considerate.inference.sweep import Runner
from considerate.model.model import Model

logger = logging.getLogger("considerate")

FALLEN_BACK = 0.01  # share of a sweep's draws by popularity for want of items of the walk that deserves a warning
COLLAPSED = 0.6  # spread of u'v; fits to data that supports its vectors have 0.9 to 1.6
Publish = Callable[[FitSession, Model | None], None]


def run_fit(request: FitRequest, backend: FitBackend, publish: Publish) -> Generator[FitStep]:
    """Fit, one sweep at a time. `publish` gets the model at the end, and after every sweep if that costs nothing. A fit
    that is stopped, by Ctrl-C or by closing the steps, ends with the model of its last finished sweep, unless
    `keep_unfinished` is False."""
    refuse(request, getattr(backend, "where", Where()))
    import scipy.special  # noqa: F401  (loaded late, where memory is short, its OpenBLAS can wait for ever)

    with (
        translate_memory_errors(),
        backend.start(request) as session,
        open_checkpoints(request.checkpoint, session) as checkpoints,
    ):
        publish(session, None)
        plan = request.plan
        if checkpoints is not None and checkpoints.saved is not None:
            plan = chosen_settings(checkpoints.saved, plan)
        elif plan.tuned:
            plan = session.tune(plan)
        plan = session.resolve(plan)
        runner = session.runner(plan)
        progress = FitProgress() if checkpoints is None else checkpoints.restore(plan, session)
        progress.converged = has_converged(progress.recent, window_of(plan), plan.tolerance)
        steps = sweep_until_settled(runner, plan, progress)
        try:
            for step in steps:
                progress.add(step)
                if checkpoints is not None and checkpoints.is_due(plan, progress):
                    checkpoints.write(plan, progress, session)
                if (model := session.snapshot(plan, progress)) is not None:
                    publish(session, model)
                logger.info("%s", step.summary())
                yield replace(step, note=session.note())
        except (KeyboardInterrupt, GeneratorExit, DivergedError) as stopped:
            with held_interrupts():
                steps.close()
                if progress.state is not None:
                    session.rewind(progress.sweep)
                    if checkpoints is not None and not isinstance(stopped, DivergedError):
                        checkpoints.write(plan, progress, session)
                    if request.keep_unfinished:
                        publish(session, session.finish(plan, _with_last_bound(progress, runner)))
            raise
        if progress.state is not None:
            if progress.converged or len(progress.recent) == MOST_RECENT:  # a short fit is near its first values
                warn_of_collapse(progress.state.posterior, plan.likelihood_weight)
            report_fallbacks(session.fallen_back(), session.mixing)
            publish(session, session.finish(plan, _with_last_bound(progress, runner)))


def _with_last_bound(progress: FitProgress, runner: Runner) -> FitProgress:
    """Append the bound of the last posterior, by one more pass; each sweep gives the bound before it."""
    assert progress.state is not None
    return replace(progress, bounds=(*progress.bounds, runner.evaluate_bound(progress.state).terms()))


def warn_of_collapse(posterior: Posterior, weight: float) -> None:
    """Warn if the vectors have collapsed, as mean-field VB prunes factors that sparse data cannot support. With
    features the precisions describe only what features do not explain, which may be little."""
    spread, featured = posterior.prior_spread(), posterior.user_weights or posterior.item_weights
    if spread < COLLAPSED and not featured:
        logger.warning(
            "the vectors have all but collapsed: the logits' part that is personal has a spread of %.2f. A larger "
            "likelihood_weight (it is %g), 'auto' among them, with the walk more mixing, or fewer factors would keep "
            "more of the taste",
            spread,
            weight,
            extra={"once": True},
        )


def report_fallbacks(share: float, mixing: float | None) -> None:
    """Report how often the walk had no item left, because all items that it reaches are liked or drawn already."""
    if share > 0:
        logger.log(
            logging.WARNING if share > FALLEN_BACK else logging.INFO,
            "the walk had no item left for %.3g %% of the unliked edges of the last sweep, and popularity chose them. "
            "A larger mixing (it is %g) leaves no user without items to consider",
            100 * share,
            mixing,
            extra={"once": True},
        )
