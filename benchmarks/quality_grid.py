"""The settings of the peers of `quality_time`, chosen once on validation likes; writes quality_time.json beside this.

    python -m benchmarks.quality_grid [--set ml-1m ...] [--peer ALS ...] [--resume]

Of the training likes of the first split one per user is held out again (at most 4,000 users); the test likes are in
neither part. A peer's grid is tried at 64 factors; from the best of it, for each metric, the factors (up to 256, of BPR
and LightFM 128) and of all but BPR the penalties are raised and lowered while that helps. Of the trials within a hair
of the best value the fastest is chosen, in processor seconds, and it goes on for as many iterations as that takes. Sets
and peers that are not named stay in the file as they were; `--resume` takes the trials that an earlier run has finished
from build/quality_grid.
"""

from __future__ import annotations

import argparse
import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.data import STUDIED, real
from benchmarks.quality_fits import FITS, METRICS, Curve, Settings, missing, watch
from considerate.errors import DataError
from considerate.evaluation.split import HeldOut, one_per_user, validation
from considerate.study.fits import some_users

PATH = Path(__file__).with_name("quality_time.json")
TRIALS = Path(__file__).parents[1] / "build" / "quality_grid"
COMMAND = "python -m benchmarks.quality_grid"
VALIDATED_ON = 4000  # users at most
GROWTH, PATIENCE = 0.3, 2  # of a trial: how often it is looked at, and when it is over
HAIR = {"NDCG@20": 0.001, "S_rank": 0.0005}  # what is left of the best value to save time; less is noise
FACTORS = 64
MOST_FACTORS = {"ALS": 256, "BPR": 128, "LightFM": 128}  # an epoch of the others is slow
STEPS = {"factors": 2.0, "alpha": 2.0, "regularization": 1.8, "ridge": 1.8}  # BPR's others: the grid
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


@dataclass(frozen=True)
class Trial:
    """One setting: what was seen of it along its way."""

    settings: Settings
    iterations: list[int]
    cpu: list[float]  # seconds
    values: dict[str, list[float]]  # by metric

    def best(self, metric: str) -> float:
        return max(self.values[metric])

    def told(self) -> str:
        """In a line: the best of each metric and when, processor seconds in all."""
        shown = [
            f"{metric} {max(values):.4f} at {self.iterations[values.index(max(values))]}"
            for metric, values in self.values.items()
        ]
        return f"{words(self.settings)}: {', '.join(shown)}; {self.cpu[-1]:.1f} s for {self.iterations[-1]}"


def words(settings: Settings) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in settings.items())


class Search:
    """The trials of one peer on one set; each is kept in a file as soon as it is over."""

    def __init__(self, peer: str, held: HeldOut, kept: Path) -> None:
        self.peer, self.held, self.kept = peer, held, kept
        self.known = [Trial(**json.loads(line)) for line in kept.read_text().splitlines()] if kept.exists() else []
        self.trials: list[Trial] = []

    def run(self) -> dict[str, Any]:
        """What is chosen for each metric, and all that was tried."""
        factored = self.peer != "EASE"
        for settings in GRIDS[self.peer]:
            self.trial(({"factors": FACTORS} if factored else {}) | settings)
        for metric in METRICS:
            self.climb(metric)
        return {metric: self.choose(metric) for metric in METRICS} | {"tried": [trial.told() for trial in self.trials]}

    def trial(self, settings: Settings) -> Trial | None:
        """A trial, once; None where it diverged before it was looked at."""
        done = next((trial for trial in self.trials if trial.settings == settings), None)
        if done is not None:
            return done
        trial = next((trial for trial in self.known if trial.settings == settings), None)
        if trial is None:
            curve = Curve(self.held, MOST[self.peer], GROWTH, PATIENCE)
            with suppress(DataError):  # scores that are NaN
                watch(FITS[self.peer], self.held.train, settings, 0, curve)
            if not curve.values[METRICS[-1]]:
                return None
            trial = Trial(settings, curve.iterations, curve.cpu, curve.values)
            with self.kept.open("a") as file:
                file.write(json.dumps(asdict(trial)) + "\n")
        self.trials.append(trial)
        print(f"{self.kept.stem}: {trial.told()}", flush=True)
        return trial

    def climb(self, metric: str) -> None:
        """From the best of the trials, raise and lower each setting in turn while that helps."""
        for name in STEPS:
            for step in (STEPS[name], 1 / STEPS[name]):
                while True:
                    best = max(self.trials, key=lambda trial: trial.best(metric))
                    if name not in best.settings:
                        break
                    changed = type(best.settings[name])(float(f"{best.settings[name] * step:.3g}"))
                    if name == "factors" and changed > MOST_FACTORS[self.peer]:
                        break
                    trial = self.trial(best.settings | {name: changed})
                    if trial is None or trial.best(metric) < best.best(metric) + HAIR[metric]:
                        break

    def choose(self, metric: str) -> dict[str, Any]:
        """The fastest to within a hair of the best."""
        enough = max(trial.best(metric) for trial in self.trials) - HAIR[metric]
        reached = []
        for trial in self.trials:
            at = next((at for at, value in enumerate(trial.values[metric]) if value >= enough), None)
            if at is not None:
                reached.append((trial.cpu[at], trial.settings, trial.iterations[at], trial.values[metric][at]))
        _, settings, iterations, value = min(reached, key=lambda one: one[0])
        return {"settings": settings, "iterations": iterations, "validation": round(value, 4)}


def main() -> None:
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--set", choices=STUDIED, action="append")
    parser.add_argument("--peer", choices=list(GRIDS), action="append")
    parser.add_argument("--resume", action="store_true", help="keep the trials that an earlier run has finished")
    options = parser.parse_args()
    TRIALS.mkdir(parents=True, exist_ok=True)
    for name in options.set or STUDIED:
        graph = real(name)
        if graph is None:
            raise SystemExit(f"{name} is not there; set CONSIDERATE_DATA to the folder that has it.")
        held = some_users(validation(one_per_user(graph, 0), 0), 0, VALIDATED_ON)
        for peer in options.peer or GRIDS:
            if (why := missing(peer)) is not None:
                print(f"{name}: {why}", flush=True)
                continue
            kept = TRIALS / f"{name}, {peer}.jsonl"
            if not options.resume:
                kept.unlink(missing_ok=True)
            found = Search(peer, held, kept).run()
            chosen: dict[str, Any] = json.loads(PATH.read_text()) if PATH.exists() else {"sets": {}}
            chosen["command"] = COMMAND
            chosen["sets"].setdefault(name, {})[peer] = found
            PATH.write_text(json.dumps(chosen, indent=1) + "\n")


if __name__ == "__main__":
    main()
