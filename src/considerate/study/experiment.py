"""A study, from likes to results, in stages. Results of stages are stored; a second run computes only what has changed.

laws        degrees of G and of a drawn H, positives to negatives
trials      six settings of each recommender, on the validation part of the first split
fits        ours, the paper's and the peers on every split
judged      p(like) of judged pairs from another source
considered  whether H is right, if some rows fail the rule
curves      the knob, the bound and E[tau] by sweep, quality against time
summary     metrics over all splits, differences paired by user, the paper's statements
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from considerate.data import Interactions
from considerate.errors import UsageError
from considerate.evaluation.bootstrap import RESAMPLES
from considerate.evaluation.split import HeldOut, one_per_user, validation
from considerate.fitting.tuning import Weights
from considerate.inference.plan import Parameters
from considerate.kernels.threads import LocalBackend
from considerate.recommender import Recommender
from considerate.study import fits
from considerate.study.cache import Arrays, Cache, Stage, StageRunner, StudyStep, code_version
from considerate.study.fits import PAPERS, Compute, Ranking, SplitResult
from considerate.study.material import Material, make_material, study_balance, study_degrees
from considerate.study.peers import Peer, as_peer, blas_threads, standard_peers
from considerate.study.results import (
    Balance,
    ConsideredByDegree,
    Data,
    Degrees,
    Example,
    KnobCurve,
    Reliability,
    Results,
    TimeCurve,
    Trace,
)
from considerate.study.statements import make_statements
from considerate.study.summary import Contender, Judgement, Summary, considered_by_degree, reliabilities

OURS, DEFAULT = "considerate", "considerate, default"
FIRST_PLACES, FOR_TAIL = "considerate, first places", "considerate, for the tail"  # the same posterior, other weights
CHOSEN_BY = {OURS: "rank", FIRST_PLACES: "top", FOR_TAIL: "tail"}  # criterion of a trial that chooses its weights
TAIL_PEER = "BPR-popularity"  # also tuned for the tail, like ours
PAPER_SCORES = {"like": "like", "popularity_x_like": "popularity x like"}  # as a score -> in words
LAWS_CODE = ("simulation/degrees.py", "inference/hidden", "study/material.py")


@dataclass(frozen=True)
class StudyOptions:
    """Options of a study."""

    settings: Mapping[str, Any] = field(default_factory=dict)  # of our model, if not the defaults
    splits: int = 5
    seed: int = 0
    peers: bool = True
    threads: int | None = None
    resamples: int = RESAMPLES

    def __post_init__(self) -> None:
        if not isinstance(self.splits, int) or not 1 <= self.splits <= 100:
            raise UsageError(f"splits is {self.splits!r}; it must be a whole number from 1 to 100.")
        Recommender(**self.settings).check()


@dataclass
class Entrant:
    """A model in the study (ours, the paper's or a peer's), with the settings that its trials chose."""

    label: str
    settings: dict[str, Any]
    trials: int
    description: str
    rankings: list[Ranking]
    peer: Peer | None = None
    splits: list[Arrays] = field(default_factory=list)  # measurements on each split

    def contenders(self, splits: Sequence[HeldOut]) -> Iterator[Contender]:
        for at, ranking in enumerate(self.rankings):
            description = (
                self.description if ranking.weights is None else f"{self.description}; {ranking.weights.text()}"
            )
            results = [SplitResult.from_arrays(arrays, held, at) for arrays, held in zip(self.splits, splits)]
            yield Contender(ranking.name, description, self.trials, results)


def run_study(
    likes: Any,
    *,
    not_liked: Interactions | None = None,
    judged: tuple[Interactions, Interactions | None] | None = None,
    test: Interactions | None = None,
    scorers: Sequence[Any] = (),
    title: str | None = None,
    folder: str | Path | None = None,
    splits: int = 5,
    seed: int = 0,
    peers: bool = True,
    threads: int | None = None,
    **settings: Any,
) -> Results:
    """Study likes (anything that `read_interactions` reads) and return the results.

    not_liked   pairs that the same people considered and did not like, to check p(like) with
    judged      (likes, others) from another source, to check p(like) with
    test        test likes; if not given, one like of each user is held out, `splits` times
    scorers     your own recommenders, see `peers.as_peer`
    folder      folder that stores the stages for the next run
    settings    settings of `Recommender`
    """
    material = make_material(likes, not_liked=not_liked, judged=judged, test=test, title=title)
    study = Study(material, StudyOptions(settings, splits, seed, peers, threads), scorers, folder)
    for _ in study.steps():
        pass
    return study.results


class Study:
    """A study of a data set; `steps` runs it and sets `results`."""

    results: Results

    def __init__(
        self,
        material: Material,
        options: StudyOptions | None = None,
        scorers: Sequence[Any] = (),
        folder: str | Path | None = None,
    ) -> None:
        self.material, self.options = material, options or StudyOptions()
        self.cache = Cache(None if folder is None else Path(folder), material.fingerprint())
        self.notes = list(material.notes)
        factors = int(self.options.settings.get("factors", Parameters().factors))
        standard = standard_peers(factors) if self.options.peers else standard_peers()[:1]
        self.peers: list[Peer] = []
        for peer in [*standard, *map(as_peer, scorers)]:
            why = peer.unavailable(material.graph)
            if why is None:
                self.peers.append(peer)
            else:
                self.notes.append(f"{peer.name} is left out: {why}")
        names = [peer.name for peer in self.peers]
        if len(set(names)) < len(names):
            raise UsageError(f"two recommenders have one name ({', '.join(names)}); give Own(name, make).")
        seed = self.options.seed
        if material.test is not None:
            self.splits = [material.test]
        else:
            self.splits = [one_per_user(material.graph, seed + at) for at in range(self.options.splits)]
        most, judged = fits.most_users(material.graph.item_count), len(np.unique(self.splits[0].users))
        if judged > most:
            self.notes.append(
                f"{most:,} of {judged:,} users, drawn by the seed, are tested: each needs a ranking of all items"
            )
            self.splits = [fits.some_users(split, seed, most) for split in self.splits]
        self.valid = fits.some_users(validation(self.splits[0], seed), seed, min(fits.TUNED_ON, most))

    def steps(self) -> Iterator[StudyStep]:
        """Run the study; yield a step when a group of stages begins and when each stage is done."""
        begun = time.perf_counter()
        with LocalBackend(self.options.threads) as backend, blas_threads(1):
            self._backend = backend
            self._runner = StageRunner(self.cache, backend.threads, self._stage_count())
            degrees, balance = yield from self._laws()
            yield from self._trials()
            yield from self._fits()
            judged = yield from self._judge()
            considered = yield from self._consider()
            knob, examples = yield from self._knob()
            traces, times = yield from self._traces()
            yield self._runner.begin("summary")
            statistics = self._summarise()
            self.results = Results(
                data=self._data(),
                degrees=[Degrees(**row) for row in degrees],
                balance=[Balance(**row) for row in balance],
                reliability=self._reliability(judged),
                considered=considered,
                knobs=[knob],
                examples=examples,
                traces=traces,
                times=times,
                seconds=time.perf_counter() - begun,
                reused_seconds=self._runner.reused_seconds,
                versions=_versions(),
                **statistics,
            )
        yield self._runner.end("summary")

    def _stage_count(self) -> int:
        """Count the stages that are certain before the trials."""
        tried = len(fits.our_trials({})) + sum(len(peer.trials) for peer in self.peers if len(peer.trials) > 1)
        models = 1 + len(PAPERS)
        judged = 0  # each model on judged pairs from another source, or ours on who considers what
        if self.material.judged is not None:
            judged = models if self.material.judged.apart else 1
        laws, knob, summary = 2, 1, 1
        return laws + tried + (models + len(self.peers)) * (len(self.splits) + 1) + judged + knob + summary

    def _stage(
        self,
        name: str,
        work: Callable[..., Any],
        settings: Mapping[str, Any],
        peer: Peer | None = None,
        split: int = 0,
        **about: Any,
    ) -> Stage:
        """Make the stage that computes `work(settings, compute)`; its result also depends on `about`."""
        compute = Compute(self.options.seed + split, self._backend.threads, self._backend.map, self.material.considered)
        version: str | None = code_version(*fits.OUR_CODE, *fits.CODE)
        about |= {"settings": dict(settings), "seed": self.options.seed, "split": split}
        if peer is not None:
            version = None if peer.version is None else peer.version + code_version(*fits.CODE) + str(_versions())
            about |= {"peer": peer.name, "factors": getattr(peer, "factors", None)}
        return Stage(name, version, about, partial(work, settings, compute), peer is not None and peer.one_thread)

    def _laws(self) -> Generator[StudyStep, None, list[Any]]:
        version, about = code_version(*LAWS_CODE), {"seed": self.options.seed}

        def stage(name: str, study: Callable[..., Any]) -> Stage:
            rows = partial(study, self.material.graph, self.options.seed, self._backend)
            return Stage(name, version, about, lambda: [asdict(row) for row in rows()])

        stages = [stage("degrees", study_degrees), stage("balance", study_balance)]
        return (yield from self._runner.run("degrees and their laws", stages))

    # --- Trials: choose settings, knob and iterations on the validation part of the first split ---

    def _trials(self) -> Iterator[StudyStep]:
        given = dict(self.options.settings)
        trials = fits.our_trials(given)
        results = yield from self._run_trials(OURS, trials, partial(fits.try_ours, self.valid))
        described = [
            _words({name: value for name, value in trial.items() if given.get(name) != value}) or "as given"
            for trial in trials
        ]
        highest = max(result["rank"] for result in results)
        best = next(at for at, result in enumerate(results) if result["rank"] >= highest - fits.TIE)

        def ranking(name: str, at: int, chosen_by: str = "rank") -> Ranking:
            return Ranking(name, Weights(*results[at][f"{chosen_by} weights"]))

        rankings = [ranking(name, best, chosen_by) for name, chosen_by in CHOSEN_BY.items()]
        ours = Entrant(OURS, trials[best], len(trials), described[best], rankings)
        self._entrants = [ours]
        if best != 0:
            self._entrants.append(Entrant(DEFAULT, trials[0], 1, described[0], [ranking(DEFAULT, 0)]))
            self._runner.total += len(self.splits)
        for rate, settings in PAPERS.items():
            rankings = [Ranking(f"{words}, {rate}", paper=score) for score, words in PAPER_SCORES.items()]
            self._entrants.append(
                Entrant(f"the paper's, {rate}", settings, 0, f"the paper's: c = 1, {rate}, K = 20", rankings)
            )
        self._probable = {  # models whose p(like) is measured
            "default" if OURS in entrant.label else entrant.label: entrant
            for entrant in self._entrants
            if entrant.peer is None and (entrant is not ours or best == 0)
        }
        for peer in list(self.peers):
            yield from self._peer_trials(peer)
        self.notes.append(f"tried for considerate, each with its best weights: {'; '.join(described)}")
        for peer in self.peers:
            if len(peer.trials) > 1:
                self.notes.append(f"tried for {peer.name}: {'; '.join(map(_words, peer.trials))}")

    def _run_trials(
        self, label: str, trials: Sequence[Mapping[str, Any]], work: Callable[..., Any], peer: Peer | None = None
    ) -> Generator[StudyStep, None, list[Any]]:
        stages = [
            self._stage(f"trial of {label} {number}", work, settings, peer) for number, settings in enumerate(trials, 1)
        ]
        return (yield from self._runner.run(f"{label}: trials on validation", stages))

    def _peer_trials(self, peer: Peer) -> Iterator[StudyStep]:
        trials = [dict(trial) for trial in peer.trials]
        if len(trials) == 1:
            self._entrants.append(Entrant(peer.name, trials[0], 0, "nothing to tune", [Ranking(peer.name)], peer))
            return
        results = yield from self._run_trials(peer.name, trials, partial(fits.try_peer, peer, self.valid), peer)
        at = fits.best_trial(results)
        best = results[at]
        if best["rank"] < 0:
            self.notes.append(f"{peer.name} is left out: all of its trials diverged")
            self.peers.remove(peer)
            self._runner.total -= len(self.splits) + 1
            return

        def entrant(name: str, at: int, iterations: int) -> Entrant:
            chosen, factors = trials[at] | {"iterations": iterations}, getattr(peer, "factors", None)
            words = _words(chosen if iterations > 1 else trials[at]) + (f", {factors} factors" if factors else "")
            return Entrant(name, chosen, len(trials), words, [Ranking(name)], peer)

        self._entrants.append(entrant(peer.name, at, best["iterations"]))
        in_tail = max(range(len(trials)), key=lambda at: results[at]["tail"])
        if peer.name == TAIL_PEER and (in_tail, results[in_tail]["tail iterations"]) != (at, best["iterations"]):
            self._entrants.append(entrant(f"{peer.name}, for the tail", in_tail, results[in_tail]["tail iterations"]))
            self._runner.total += len(self.splits)
        if best["rising"]:
            self.notes.append(
                f"{peer.name} was best at its last iteration, {best['iterations']}: more iterations might help it"
            )

    # --- Fits, judgements and curves ---

    def _fits(self) -> Iterator[StudyStep]:
        """Fit every entrant on every split."""
        for entrant in self._entrants:
            peer, label = entrant.peer, entrant.label
            measure = partial(fits.measure_ours, entrant.rankings, self.material.judged)
            if peer is not None:
                measure = partial(fits.measure_peer, peer)
            rankings = [asdict(ranking) for ranking in entrant.rankings]
            stages = [
                self._stage(
                    f"fit of {label}, split {at + 1}",
                    partial(measure, held),
                    entrant.settings,
                    peer,
                    at,
                    rankings=rankings,
                )
                for at, held in enumerate(self.splits)
            ]
            entrant.splits = yield from self._runner.run(f"{label}: fits on {len(self.splits)} splits", stages)

    def _judge(self) -> Generator[StudyStep, None, list[Arrays]]:
        """Compute p(like) of judged pairs from another source, by models of all likes."""
        judged = self.material.judged
        if judged is None or not judged.apart:
            return []
        judge = partial(fits.judge_ours, judged, self.material.graph)
        models = self._probable.items()
        stages = [self._stage(f"judged by {name}", judge, entrant.settings) for name, entrant in models]
        return (yield from self._runner.run("p(like) of judged pairs", stages))

    def _consider(self) -> Generator[StudyStep, None, list[ConsideredByDegree]]:
        """Check H: can our model of the first split find the pairs of the same people that fail the rule?"""
        judged = self.material.judged
        if judged is None or judged.apart:
            return []
        work = partial(fits.consider_ours, judged, self.splits[0])
        stage = self._stage("considered pairs", work, self._entrants[0].settings)
        (found,) = yield from self._runner.run("who considers what", [stage])
        bootstrap = {"seed": self.options.seed, "resamples": self.options.resamples}
        return considered_by_degree(found["names"].tolist(), found["auc"], found["degree"], **bootstrap)

    def _knob(self) -> Generator[StudyStep, None, tuple[KnobCurve, list[Example]]]:
        ours = self._entrants[0]
        chosen, _ = ours.rankings[0].weights or Weights(0.0, 0.0)
        knobs, rankings = sorted({*fits.KNOBS, chosen}), ours.rankings[:2]
        work = partial(fits.knob_and_examples, knobs, rankings, self.splits[0])
        described = [asdict(ranking) for ranking in rankings]
        stage = self._stage("knob curve", work, ours.settings, knobs=knobs, rankings=described)
        (found,) = yield from self._runner.run("the knob's curve and examples", [stage])
        return KnobCurve(OURS, **found["curve"], chosen=chosen), list(map(self._example, found["examples"]))

    def _example(self, rows: Mapping[str, Any]) -> Example:
        """Make an example with the ids and titles of the data."""
        user, item = self.material.user, self.material.item
        liked, held_out = ([item(row) for row in rows[name]] for name in ("liked", "held_out"))
        lists = {name: [item(row) for row in listed] for name, listed in rows["lists"].items()}
        return Example(user(rows["user"]), rows["degree"], liked, held_out, lists, rows["p_like"])

    def _traces(self) -> Generator[StudyStep, None, tuple[list[Trace], list[TimeCurve]]]:
        names = {OURS, *(f"the paper's, {rate}" for rate in PAPERS), *(peer.name for peer in self.peers)}
        traced = [entrant for entrant in self._entrants if entrant.label in names]
        stages = []
        for entrant in traced:
            ranking = entrant.rankings[0] if entrant.label == OURS else Ranking("by liking", Weights(0.0, 0.0))
            work = partial(fits.trace_ours, ranking, self.valid)
            if entrant.peer is not None:
                work = partial(fits.trace_peer, entrant.peer, self.valid)
            name, about = f"trace of {entrant.label}", asdict(ranking)
            stages.append(self._stage(name, work, entrant.settings, entrant.peer, ranking=about))
        traces, times = [], []
        curves = yield from self._runner.run("the bound by sweep, quality against time", stages)
        for entrant, curve in zip(traced, curves):
            times.append(TimeCurve(entrant.label, curve["seconds"], curve["rank"], curve["recall"]))
            if entrant.peer is None:
                taus = {kind: [row[kind] for row in curve["taus"]] for kind in curve["taus"][0]}
                lines = (curve["sweep"], curve["bound"], taus, curve["spread"], curve["rank"])
                traces.append(Trace(entrant.label, *lines))
        return traces, times

    # --- The end ---

    def _summarise(self) -> dict[str, Any]:
        """Compute the fields of the results that are statistics over the held-out likes of all splits."""
        summary = Summary(self.splits, self.options.seed, self.options.resamples)
        contenders = {
            contender.name: contender for entrant in self._entrants for contender in entrant.contenders(self.splits)
        }
        p_held = {name: [arrays["p_held"] for arrays in entrant.splits] for name, entrant in self._probable.items()}
        papers = {rate: self._probable[f"the paper's, {rate}"] for rate in PAPERS}
        taus = {rate: np.stack([arrays["taus"] for arrays in entrant.splits]) for rate, entrant in papers.items()}
        return {
            "errors": [summary.errors(name, p) for name, p in p_held.items()],
            "histograms": [summary.histogram(name, p) for name, p in p_held.items()],
            "ranks": [row for contender in contenders.values() for row in summary.ranks_by_degree(contender)],
            "comparisons": summary.compare(list(contenders.values()), OURS, FIRST_PLACES, FOR_TAIL),
            "differences": [
                summary.differences(contenders[ours], contenders[peer.label])
                for ours in (OURS, FOR_TAIL)
                for peer in self._entrants
                if peer.peer is not None
            ],
            "statements": make_statements(
                contenders, {rate: p_held[entrant.label] for rate, entrant in papers.items()}, taus, self.splits
            ),
        }

    def _reliability(self, apart: Sequence[Arrays]) -> list[Reliability]:
        judged = self.material.judged
        if judged is None:
            self.notes.append("p(like) cannot be checked: no pair is known to have been considered and not liked")
            return []
        judgements = {}
        for at, (name, entrant) in enumerate(self._probable.items()):
            if judged.apart:
                likes, others = [(judged.liked_users, apart[at]["p_liked"])], [(judged.users, apart[at]["p_judged"])]
            else:
                likes = [(held.users, arrays["p_held"]) for held, arrays in zip(self.splits, entrant.splits)]
                others = [(judged.users, arrays["p_judged"]) for arrays in entrant.splits]
            judgements[name] = Judgement.of(likes, others)
        return reliabilities(judgements, "default", self.options.seed, self.notes)

    def _data(self) -> Data:
        material, graph = self.material, self.material.graph
        return Data(
            name=material.name,
            source=material.source,
            rule=material.rule,
            users=graph.user_count,
            items=graph.item_count,
            likes=graph.edges,
            duplicates=graph.duplicates,
            notes=self.notes,
            split="one random like of every user who has two" if material.test is None else "train and test as given",
            splits=len(self.splits),
            held_out=len(self.splits[0].users),
            judged=0 if material.judged is None else len(material.judged.users),
        )


def _words(settings: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}" for name, value in settings.items()
    )


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for package in ("considerate", "numpy", "scipy", "cornac", "implicit"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions
