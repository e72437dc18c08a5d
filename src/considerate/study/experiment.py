"""From likes to results, stage by stage; each stage is kept, so that a second run makes only what has changed.

laws       degrees of G and of a drawn H, positives to negatives
trials     six settings each, on the validation part of the first split
fits       ours, the paper's and the peers on every split
judged     p(like) where the truth is known apart
curves     the knob, the bound and E[tau] by sweep, quality against time
summary    metrics pooled over splits, differences paired by user, the paper's statements
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from considerate.data import Interactions
from considerate.data.graph import run_serially
from considerate.errors import UsageError
from considerate.evaluation.bootstrap import RESAMPLES
from considerate.evaluation.split import HeldOut, one_per_user, validation
from considerate.kernels.threads import LocalBackend
from considerate.parameters import Parameters
from considerate.recommender import Recommender
from considerate.study import fits, laws, summary
from considerate.study.cache import Arrays, Cache, Stage, code_version
from considerate.study.fits import Score
from considerate.study.material import Material, make_material
from considerate.study.ours import KNOBS, PAPERS, our_trials, our_version
from considerate.study.peers import Peer, as_peer, blas_threads, standard_peers
from considerate.study.results import Balance, Data, Degrees, KnobCurve, Results, TimeCurve, Trace
from considerate.study.stages import Runner, Step, Task
from considerate.study.statements import make_statements

OURS, BY_LIKING, DEFAULT = "considerate", "considerate, knob 0", "considerate, default"


@dataclass(frozen=True)
class Options:
    """How to study."""

    settings: Mapping[str, Any] = field(default_factory=dict)  # of our model, where not the defaults
    splits: int = 5
    seed: int = 0
    peers: bool = True
    threads: int | None = None
    resamples: int = RESAMPLES

    def __post_init__(self) -> None:
        if not isinstance(self.splits, int) or not 1 <= self.splits <= 100:
            raise UsageError(f"splits is {self.splits!r}; it must be a whole number from 1 to 100.")
        Recommender(**self.settings).check()


@dataclass(frozen=True)
class _Chosen:
    """A peer, or ours, with the settings that its trials gave it."""

    settings: dict[str, Any]
    trials: int
    words: str
    knob: float = 0.0


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
    """Study likes (whatever `read_interactions` reads) and give the results.

    not_liked   pairs that were considered and not liked, of the same people: the truth about p(like)
    judged      (likes, others) of a set of its own, as such truth
    test        likes to rank, if the split is given; else one like of each user is held out, `splits` times
    scorers     your own recommenders, see `peers.as_peer`
    folder      where stages are kept for the next run
    settings    of `Recommender`
    """
    material = make_material(likes, not_liked=not_liked, judged=judged, test=test, title=title)
    study = Study(material, Options(settings, splits, seed, peers, threads), scorers, folder)
    for _ in study.steps():
        pass
    return study.results


class Study:
    """A study of some material; `steps` does it, `results` has it then."""

    def __init__(
        self,
        material: Material,
        options: Options | None = None,
        scorers: Sequence[Any] = (),
        folder: str | Path | None = None,
    ) -> None:
        self.material, self.options = material, options or Options()
        self.cache = Cache(None if folder is None else Path(folder), material.fingerprint())
        self.notes = list(material.notes)
        factors = int(self._given.get("factors", Parameters().factors))
        joining = [*(standard_peers(factors) if self.options.peers else standard_peers()[:1]), *map(as_peer, scorers)]
        self.peers: list[Peer] = []
        for peer in joining:
            why = peer.unavailable(material.graph)
            if why is None:
                self.peers.append(peer)
            else:
                self.notes.append(f"{peer.name} is left out: {why}")
        names = [peer.name for peer in self.peers]
        if len(set(names)) < len(names):
            raise UsageError(f"two recommenders have one name ({', '.join(names)}); give Own(name, make).")
        self.results: Results

    @property
    def _given(self) -> dict[str, Any]:
        return dict(self.options.settings)

    def steps(self) -> Iterator[Step]:
        """Do it; a step is seen when a stage begins and when a part of it is done."""
        begun = time.perf_counter()
        with LocalBackend(self.options.threads) as backend, blas_threads(1):
            self._backend, self._runner = backend, Runner(self.cache, backend.threads)
            self._splits = self._make_splits()
            self._valid = fits.some_users(validation(self._splits[0], self.options.seed), self.options.seed)
            self._count()
            yield from self._laws()
            yield from self._trials()
            yield from self._fits()
            yield from self._judge()
            yield from self._curves()
            yield self._runner.begin("summary")
            self._summarise(time.perf_counter() - begun)
        yield self._runner.end("summary")

    def _make_splits(self) -> list[HeldOut]:
        if self.material.test is not None:
            return [self.material.test]
        return [one_per_user(self.material.graph, self.options.seed + at) for at in range(self.options.splits)]

    def _count(self) -> None:
        """How many parts there are, as far as is known before the trials."""
        tried = sum(len(peer.trials) for peer in self.peers if len(peer.trials) > 1)
        apart = self.material.judged is not None and self.material.judged.apart
        models = 1 + len(PAPERS)
        curves = 1 + models + len(self.peers)
        fitted = len(self._splits) * (models + len(self.peers))
        self._runner.total = 2 + len(our_trials({})) + tried + fitted + (models if apart else 0) + curves + 1

    # --- What a part depends on ---

    @property
    def _threads(self) -> int:
        return self._backend.threads

    def _our_stage(self, name: str, settings: Mapping[str, Any], **more: Any) -> Stage:
        version = our_version() + code_version(*fits.CODE)
        return Stage(name, version, {"ours": dict(settings), "seed": self.options.seed, **more})

    def _peer_stage(self, name: str, peer: Peer, settings: Mapping[str, Any], **more: Any) -> Stage:
        version = None if peer.version is None else peer.version + code_version(*fits.CODE) + str(_versions())
        about = {"peer": peer.name, "settings": dict(settings), "factors": getattr(peer, "factors", None)}
        return Stage(name, version, about | {"seed": self.options.seed, **more})

    # --- The stages ---

    def _laws(self) -> Iterator[Step]:
        yield self._runner.begin("degrees and their laws")
        graph, seed, found = self.material.graph, self.options.seed, []  # type: ignore[var-annotated]
        version = code_version("simulation/degrees.py", "inference/hidden", "study/laws.py")
        yield from self._runner.run(
            [
                Task(
                    Stage("degrees", version, {"seed": seed}),
                    lambda: [asdict(one) for one in laws.study_degrees(graph, seed, self._backend)],
                    False,
                ),
                Task(
                    Stage("balance", version, {"seed": seed}),
                    lambda: [asdict(one) for one in laws.study_balance(graph, seed, self._backend)],
                    False,
                ),
            ],
            found,
        )
        self._degrees = [Degrees(**one) for one in found[0]]
        self._balance = [Balance(**one) for one in found[1]]

    def _trials(self) -> Iterator[Step]:
        """FitPlan, knob and iterations, chosen on the validation part of the first split."""
        seed, valid, run = self.options.seed, self._valid, self._backend.map
        trials, found = our_trials(self._given), []  # type: ignore[var-annotated]
        yield self._runner.begin("considerate: trials on validation")

        def trial(settings: dict[str, Any]) -> Callable[[], Any]:
            return lambda: fits.try_ours(valid, settings, seed, self._threads, run)

        yield from self._runner.run(
            [
                Task(self._our_stage(f"trial of considerate {at + 1}", one), trial(one), False)
                for at, one in enumerate(trials)
            ],
            found,
        )
        best = fits.best_trial(found)
        words = _words(self._changed(trials[best])) or "as given"
        self._ours = _Chosen(trials[best], len(trials), f"{words}; knob {found[best]['knob']:g}", found[best]["knob"])
        as_given = f"as given; knob {found[0]['knob']:g}"
        self._default = self._ours if best == 0 else _Chosen(trials[0], 1, as_given, found[0]["knob"])
        self._runner.total += 0 if best == 0 else len(self._splits)
        self._chosen: dict[str, _Chosen] = {}
        for peer in list(self.peers):
            yield from self._peer_trials(peer)
        self._say_budget(trials)

    def _peer_trials(self, peer: Peer) -> Iterator[Step]:
        trials, found = [dict(one) for one in peer.trials], []  # type: ignore[var-annotated]
        if len(trials) == 1:
            self._chosen[peer.name] = _Chosen(trials[0], 0, "nothing to tune")
            return
        yield self._runner.begin(f"{peer.name}: trials on validation")
        threads, run = (1, run_serially) if peer.one_thread else (self._threads, self._backend.map)

        def trial(settings: dict[str, Any]) -> Callable[[], Any]:
            return lambda: fits.try_peer(self._valid, peer, settings, self.options.seed, threads, run)

        tasks = [
            Task(self._peer_stage(f"trial of {peer.name} {at + 1}", peer, one), trial(one), False)
            for at, one in enumerate(trials)
        ]
        yield from self._runner.run(tasks, found, abreast=peer.one_thread)
        best = fits.best_trial(found)
        if found[best]["rank"] < 0:
            self.notes.append(f"{peer.name} is left out: all of its trials diverged")
            self.peers.remove(peer)
            self._runner.total -= len(self._splits) + 1
            return
        chosen = trials[best] | {"iterations": found[best]["iterations"]}
        factors = getattr(peer, "factors", None)
        words = _words(chosen if chosen["iterations"] > 1 else trials[best])
        self._chosen[peer.name] = _Chosen(chosen, len(trials), words + (f", {factors} factors" if factors else ""))
        if found[best]["rising"]:
            self.notes.append(f"{peer.name} was best at its last iteration, {chosen['iterations']}: more might help it")
        other = int(np.argmax([one["tail"] for one in found]))
        if found[other]["tail"] > found[best]["tail"]:
            self.notes.append(
                f"{peer.name} was chosen by its mean S_rank, as all are; in the tail of validation another of its "
                f"trials ({_words(trials[other])}) had {found[other]['tail']:.3f} to {found[best]['tail']:.3f}"
            )

    def _changed(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in settings.items() if self._given.get(name) != value}

    def _say_budget(self, trials: Sequence[Mapping[str, Any]]) -> None:
        people = len(np.unique(self._valid.users))
        self.notes.append(
            "settings were chosen by mean S_rank on the validation part of the first split alone (one like of each of "
            f"{people:,} users, taken from its training likes), and used on all splits; of settings that differ by "
            f"less than {fits.TIE:g} the best in the tail (ours at knob 0) was taken; of peers that iterate the number "
            "of iterations was chosen with them"
        )
        tried = "; ".join(_words(self._changed(one)) or "as given" for one in trials)
        self.notes.append(
            "tried for considerate, each with the knob from 0 to 1.5 in steps of 0.25, then of 0.05 around the best: "
            + tried
        )
        for peer in self.peers:
            if len(peer.trials) > 1:
                self.notes.append(f"tried for {peer.name}: {'; '.join(_words(one) for one in peer.trials)}")

    def _fits(self) -> Iterator[Step]:
        """Everyone on every split."""
        judged, seed = self.material.judged, self.options.seed
        self._scores: dict[str, tuple[_Chosen, list[Score]]] = {}
        scores = [Score(OURS, self._ours.knob), Score(BY_LIKING, 0.0)]
        self._scores[OURS] = (self._ours, scores)
        if self._default is not self._ours:
            self._scores[DEFAULT] = (self._default, [Score(DEFAULT, self._default.knob)])
        for rate, settings in PAPERS.items():
            both = [
                Score(f"like, {rate}", paper="like"),
                Score(f"popularity x like, {rate}", paper="popularity_x_like"),
            ]
            self._scores[rate] = (_Chosen(settings, 0, f"the paper's: c = 1, {rate}, K = 20"), both)
        self._arrays: dict[str, list[Arrays]] = {}

        def ours(at: int, chosen: _Chosen, scores: list[Score]) -> Callable[[], Any]:
            held = self._splits[at]
            return lambda: fits.measure_ours(
                held, chosen.settings, scores, judged, seed + at, self._threads, self._backend.map
            )

        for name, (chosen, ranked) in self._scores.items():
            label = f"the paper's, {name}" if name in PAPERS else name
            yield self._runner.begin(f"{label}: fits on {len(self._splits)} splits")
            about = {"scores": [asdict(one) for one in ranked]}
            tasks = [
                Task(
                    self._our_stage(f"fit of {label}, split {at + 1}", chosen.settings, split=at, **about),
                    ours(at, chosen, ranked),
                )
                for at in range(len(self._splits))
            ]
            self._arrays[name] = []
            yield from self._runner.run(tasks, self._arrays[name])
        for peer in self.peers:
            yield from self._peer_fits(peer)

    def _peer_fits(self, peer: Peer) -> Iterator[Step]:
        chosen, seed = self._chosen[peer.name], self.options.seed
        threads, run = (1, run_serially) if peer.one_thread else (self._threads, self._backend.map)

        def fit(at: int) -> Callable[[], Any]:
            held = self._splits[at]
            return lambda: fits.measure_peer(held, peer, chosen.settings, seed + at, threads, run)

        yield self._runner.begin(f"{peer.name}: fits on {len(self._splits)} splits")
        tasks = [
            Task(self._peer_stage(f"fit of {peer.name}, split {at + 1}", peer, chosen.settings, split=at), fit(at))
            for at in range(len(self._splits))
        ]
        self._arrays[peer.name] = []
        yield from self._runner.run(tasks, self._arrays[peer.name], abreast=peer.one_thread)

    def _judge(self) -> Iterator[Step]:
        """p(like) of pairs judged apart, by models of all likes."""
        judged, self._judged = self.material.judged, []  # type: ignore[var-annotated]
        if judged is None or not judged.apart:
            return
        truth = judged
        yield self._runner.begin("p(like) of judged pairs")

        def judge(settings: dict[str, Any]) -> Callable[[], Any]:
            return lambda: fits.judge_ours(self.material.graph, settings, truth, self.options.seed, self._threads)

        tasks = [
            Task(self._our_stage(f"judged by {name}", settings), judge(settings))
            for name, settings in self._honest().items()
        ]
        yield from self._runner.run(tasks, self._judged)

    def _honest(self) -> dict[str, dict[str, Any]]:
        """The models whose p(like) is looked at."""
        return {"default": self._default.settings} | {f"the paper's, {rate}": one for rate, one in PAPERS.items()}

    def _curves(self) -> Iterator[Step]:
        seed, valid, held, run = self.options.seed, self._valid, self._splits[0], self._backend.map
        found: list[Any] = []
        knobs = sorted({*KNOBS, self._ours.knob})
        yield self._runner.begin("the knob's curve")
        knob = Task(
            self._our_stage("knob curve", self._ours.settings, knobs=knobs),
            lambda: fits.knob_curve(held, self._ours.settings, knobs, seed, self._threads, run),
            False,
        )
        yield from self._runner.run([knob], found)
        self._knob = KnobCurve(OURS, **found.pop(), chosen=self._ours.knob)

        def ours(settings: dict[str, Any], weight: float) -> Callable[[], Any]:
            return lambda: fits.trace_ours(valid, settings, weight, seed, self._threads, run)

        def peers(peer: Peer) -> Callable[[], Any]:
            return lambda: fits.trace_peer(valid, peer, self._chosen[peer.name].settings, self._threads, run)

        traced = {OURS: (self._ours.settings, self._ours.knob)}
        traced |= {f"the paper's, {rate}": (settings, 0.0) for rate, settings in PAPERS.items()}
        yield self._runner.begin("the bound by sweep, quality against time")
        tasks = [
            Task(self._our_stage(f"trace of {name}", settings, knob=weight), ours(settings, weight), False)
            for name, (settings, weight) in traced.items()
        ]
        tasks += [
            Task(self._peer_stage(f"trace of {peer.name}", peer, self._chosen[peer.name].settings), peers(peer), False)
            for peer in self.peers
        ]
        yield from self._runner.run(tasks, found)
        self._traces = dict(zip([*traced, *(peer.name for peer in self.peers)], found))

    # --- The end ---

    def _contenders(self) -> dict[str, summary.Contender]:
        found: dict[str, summary.Contender] = {}
        for name, (chosen, scores) in self._scores.items():
            for at, score in enumerate(scores):
                parts = [fits.measured(one, held, at) for one, held in zip(self._arrays[name], self._splits)]
                words = chosen.words if score.name != BY_LIKING else "the same posterior; knob 0"
                found[score.name] = summary.Contender(score.name, words, chosen.trials, parts)
        for peer in self.peers:
            parts = [fits.measured(one, held, 0) for one, held in zip(self._arrays[peer.name], self._splits)]
            chosen = self._chosen[peer.name]
            found[peer.name] = summary.Contender(peer.name, chosen.words, chosen.trials, parts)
        return found

    def _summarise(self, seconds: float) -> None:
        seed, resamples, splits = self.options.seed, self.options.resamples, self._splits
        contenders = self._contenders()
        default = OURS if self._default is self._ours else DEFAULT
        p_held = {
            name: [one["p_held"] for one in self._arrays[key]]
            for name, key in {"default": default, **{f"the paper's, {rate}": rate for rate in PAPERS}}.items()
        }
        peers = [contenders[peer.name] for peer in self.peers]
        reliability = self._reliability(default)
        traces, times = self._drawn_traces()
        graph, test = self.material.graph, self.material.test
        data = Data(
            name=self.material.name,
            source=self.material.source,
            rule=self.material.rule,
            users=graph.user_count,
            items=graph.item_count,
            likes=graph.edges,
            duplicates=graph.duplicates,
            notes=self.notes,
            split="one random like of every user who has two" if test is None else "train and test as given",
            splits=len(splits),
            held_out=len(splits[0].users),
            judged=0 if self.material.judged is None else len(self.material.judged.users),
        )
        self.results = Results(
            data=data,
            degrees=self._degrees,
            balance=self._balance,
            errors=[summary.errors(name, p, splits, seed, resamples) for name, p in p_held.items()],
            histograms=[summary.histogram(name, p, splits) for name, p in p_held.items()],
            ranks=[row for one in contenders.values() for row in summary.ranks_by_degree(one, splits, seed, resamples)],
            reliability=reliability,
            knobs=[self._knob],
            traces=traces,
            times=times,
            comparisons=summary.compare(list(contenders.values()), OURS, BY_LIKING, splits, seed, resamples),
            differences=[
                summary.differences(contenders[ours], peer, splits, seed, resamples)
                for ours in (OURS, BY_LIKING)
                for peer in peers
            ],
            statements=make_statements(
                contenders,
                {rate: p_held[f"the paper's, {rate}"] for rate in PAPERS},
                {rate: np.stack([one["taus"] for one in self._arrays[rate]]) for rate in PAPERS},
                splits,
            ),
            seconds=seconds,
            versions=_versions(),
        )

    def _reliability(self, default: str) -> list[Any]:
        judged = self.material.judged
        if judged is None:
            self.notes.append("p(like) cannot be checked: no pair is known to have been considered and not liked")
            return []
        truths: dict[str, summary.Truth] = {}
        for at, name in enumerate(self._honest()):
            if judged.apart:
                one = self._judged[at]
                likes, others = [(judged.liked_users, one["p_liked"])], [(judged.users, one["p_judged"])]
            else:
                parts = self._arrays[default if name == "default" else name.removeprefix("the paper's, ")]
                likes = [(held.users, one["p_held"]) for held, one in zip(self._splits, parts)]
                others = [(judged.users, one["p_judged"]) for one in parts]
            truths[name] = summary.Truth.of(likes, others)
        return summary.reliabilities(truths, "default", self.options.seed, self.notes)

    def _drawn_traces(self) -> tuple[list[Trace], list[TimeCurve]]:
        traces, times = [], []
        for name, found in self._traces.items():
            times.append(TimeCurve(name, found["seconds"], found["rank"], found["recall"]))
            if "bound" in found:
                taus = {key: [row[key] for row in found["taus"]] for key in found["taus"][0]}
                traces.append(Trace(name, found["sweep"], found["bound"], taus, found["spread"], found["rank"]))
        return traces, times


def _words(settings: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}" for name, value in settings.items()
    )


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in ("considerate", "numpy", "scipy", "cornac", "implicit"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found
