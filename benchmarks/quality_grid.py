"""The settings of the peers of `quality_time`, chosen once on validation likes; writes quality_time.json beside this.

    python -m benchmarks.quality_grid [--set ml-1m ...] [--peer ALS ...]

Of the training likes of the first split one per user is held out again (at most 4,000 users); the test likes are in
neither part. A peer's grid is tried at 64 factors; from the best of it each setting in turn is raised and lowered while
that helps, up to 256 factors; and so once more with as many factors as our default. For each metric that setting is
chosen that is the fastest, in processor seconds, to within a hair of the best value of all, and it goes on for as many
iterations as that takes. Sets and peers that are not named stay in the file as they were.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.data import STUDIED, real
from benchmarks.quality_fits import FITS, METRICS, Curve, Settings, missing, watch
from considerate import Recommender
from considerate.errors import ConsiderateError
from considerate.evaluation.split import HeldOut, one_per_user, validation
from considerate.study.fits import some_users

PATH = Path(__file__).with_name("quality_time.json")
COMMAND = "python -m benchmarks.quality_grid"
VALIDATED_ON = 4000  # users at most
GROWTH, PATIENCE = 0.3, 2  # of a trial: how often it is looked at, and when it is over
HAIR = {"NDCG@20": 0.001, "S_rank": 0.0005}  # what is left of the best value to save time; less is noise
FACTORS, MOST_FACTORS = 64, 256
STEPS = {"factors": 2.0, "alpha": 2.0, "regularization": 1.8, "lambda_reg": 2.0, "ridge": 1.8}
MOST = {"ALS": 30, "BPR": 250, "LightFM": 30, "EASE": 1}  # iterations
GRIDS: dict[str, list[Settings]] = {
    "ALS": [
        {"alpha": alpha, "regularization": ridge}
        for alpha, ridge in ((1.5, 15.0), (3.0, 30.0), (10.0, 30.0), (10.0, 100.0), (40.0, 120.0), (40.0, 300.0))
    ],
    "BPR": [
        *({"learning_rate": rate, "lambda_reg": ridge} for rate, ridge in ((0.02, 0.003), (0.05, 0.003), (0.1, 0.01))),
        {"learning_rate": 0.05, "lambda_reg": 0.01, "weighted": True},
    ],
    "LightFM": [{"learning_rate": 0.05, "alpha": ridge} for ridge in (0.0, 1e-6, 1e-5)],
    "EASE": [{"ridge": ridge} for ridge in (30.0, 100.0, 300.0, 1000.0, 3000.0)],
}
BEST, ALIKE = "best", "as ours"
AS_OURS: Settings = {"factors": Recommender().factors}
Trial = tuple[Settings, Curve]


def words(settings: Settings) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in settings.items())


class Search:
    """The trials of one peer on one set."""

    def __init__(self, peer: str, held: HeldOut, say: Callable[[str], None]) -> None:
        self.peer, self.held, self.say = peer, held, say
        self.trials: list[Trial] = []

    def run(self) -> dict[str, Any]:
        """What is chosen for each metric, whatever the factors and with as many as ours; and all that was tried."""
        factored = self.peer != "EASE"
        for settings in GRIDS[self.peer]:
            self.trial(({"factors": FACTORS} if factored else {}) | settings)
        for metric in METRICS:
            self.climb(metric, [name for name in STEPS if name in self.trials[0][0]])
        chosen: dict[str, Any] = {BEST: {metric: self.choose(metric) for metric in METRICS}}
        if factored:
            for metric in METRICS:
                best = max(self.trials, key=lambda trial: max(trial[1].values[metric]))[0]
                self.trial(best | AS_OURS)
                if self.peer == "ALS":  # its penalty depends on the factors more than the others' do
                    self.climb(metric, ["alpha", "regularization"], AS_OURS)
            chosen[ALIKE] = {metric: self.choose(metric, AS_OURS) for metric in METRICS}
        return chosen | {"tried": list(self.lines())}

    def trial(self, settings: Settings) -> Curve | None:
        """A trial, once; None where it diverged before it was looked at."""
        curve = next((curve for tried, curve in self.trials if tried == settings), None)
        if curve is None:
            curve = Curve(self.held, MOST[self.peer], GROWTH, PATIENCE)
            try:
                watch(FITS[self.peer], self.held.train, settings, 0, curve)
            except ConsiderateError as error:  # NaN scores
                self.say(f"{words(settings)} ends after {curve.done}: {error}")
            length = min(map(len, curve.values.values()))
            if length == 0:
                return None
            self.trials.append((settings, curve))
            self.say([*self.lines()][-1])
        return curve

    def among(self, fixed: Settings) -> list[Trial]:
        """The trials with these settings."""
        return [trial for trial in self.trials if fixed.items() <= trial[0].items()]

    def climb(self, metric: str, names: list[str], fixed: Settings | None = None) -> None:
        """From the best of the trials, raise and lower each setting in turn while that helps."""

        def best() -> tuple[Settings, float]:
            settings, curve = max(self.among(fixed or {}), key=lambda trial: max(trial[1].values[metric]))
            return settings, max(curve.values[metric])

        for name in names:
            for step in (STEPS[name], 1 / STEPS[name]):
                while True:
                    settings, value = best()
                    changed = type(settings[name])(float(f"{settings[name] * step:.3g}"))
                    if name == "factors" and changed > MOST_FACTORS:
                        break
                    curve = self.trial(settings | {name: changed})
                    if curve is None or max(curve.values[metric]) < value + HAIR[metric]:
                        break

    def choose(self, metric: str, fixed: Settings | None = None) -> dict[str, Any]:
        """The fastest to within a hair of the best."""
        trials = self.among(fixed or {})
        enough = max(max(curve.values[metric]) for _, curve in trials) - HAIR[metric]
        reached = []
        for settings, curve in trials:
            at = next((at for at, value in enumerate(curve.values[metric]) if value >= enough), None)
            if at is not None:
                reached.append((curve.cpu[at], settings, curve.iterations[at], curve.values[metric][at]))
        _, settings, iterations, value = min(reached, key=lambda one: one[0])
        return {"settings": settings, "iterations": iterations, "validation": round(value, 4)}

    def lines(self) -> Iterator[str]:
        """Each trial in a line: settings, the best of each metric and when, processor seconds in all."""
        for settings, curve in self.trials:
            best = {metric: max(values) for metric, values in curve.values.items()}
            shown = [
                f"{metric} {best[metric]:.4f} at {curve.iterations[values.index(best[metric])]}"
                for metric, values in curve.values.items()
            ]
            yield f"{words(settings)}: {', '.join(shown)}; {curve.cpu[-1]:.1f} s for {curve.iterations[-1]}"


def main() -> None:
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--set", choices=STUDIED, action="append")
    parser.add_argument("--peer", choices=list(GRIDS), action="append")
    options = parser.parse_args()
    chosen: dict[str, Any] = json.loads(PATH.read_text()) if PATH.exists() else {}
    for name in options.set or STUDIED:
        graph = real(name)
        if graph is None:
            raise SystemExit(f"{name} is not there; set CONSIDERATE_DATA to the folder that has it.")
        held = some_users(validation(one_per_user(graph, 0), 0), 0, VALIDATED_ON)
        for peer in options.peer or GRIDS:
            if (why := missing(peer)) is not None:
                print(f"{name}: {why}", flush=True)
                continue
            found = Search(peer, held, lambda text, at=f"{name}, {peer}": print(f"{at}: {text}", flush=True)).run()
            if PATH.exists():  # another process may have written meanwhile
                chosen = json.loads(PATH.read_text())
            chosen["command"] = COMMAND
            chosen.setdefault("sets", {}).setdefault(name, {})[peer] = found
            PATH.write_text(json.dumps(chosen, indent=1) + "\n")


if __name__ == "__main__":
    main()
