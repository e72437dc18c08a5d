"""considerate demo"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from considerate.cli import screen
from considerate.cli.options import Json, Quiet, Seed

if TYPE_CHECKING:
    from considerate.cli.demo_catalogue import Recovery


def demo(seed: Seed = 0, quiet: Quiet = False, json: Json = False) -> None:
    """A tour in a few seconds: make up a catalogue, fit it, recommend, and compare with the truth."""
    from considerate.cli import demo_catalogue as tour
    from considerate.cli.describe import describe_fit
    from considerate.cli.fit import run

    begun = time.perf_counter()
    console = screen.stdout()
    catalogue = tour.make_catalogue(seed=seed)
    sample = catalogue.sample
    if not json:
        _step(
            console,
            "1. A catalogue that never was",
            f"{sample.user_count:,} people and {sample.item_count:,} films of eight genres, drawn from the model. Each "
            f"person considered some films, popular ones more often: {len(sample.liked):,} pairs. A coin, weighted by "
            f"taste, decided which of them were liked: {int(sample.liked.sum()):,} likes. Only the likes are kept; "
            "what was considered and not liked is forgotten, as in real data.",
        )
        _step(console, "2. The fit", "Infer everyone's taste from the likes alone, with the forgotten pairs redrawn.")
    recommender = tour.make_recommender(seed=seed)
    with screen.told(quiet):
        whole = run(recommender, catalogue.interactions, quiet or json)
    if not whole:
        raise KeyboardInterrupt
    fit = describe_fit(recommender, time.perf_counter() - begun)
    user = tour.instructive_user(recommender, catalogue)
    likes = tour.tastes(recommender, catalogue, user)
    answers = tour.recommendations(recommender, catalogue, user)
    found = tour.recovery(recommender, sample)
    if json:
        from dataclasses import asdict

        said = {"fit": fit, "user": user, "likes": likes, "recovery": asdict(found)}
        screen.print_json(said | {"recommendations": {f"{knob:g}": rows for knob, rows in answers.items()}})
        return
    console.print(
        f"   {fit['sweeps']} sweeps, {fit['edges']:,} likes, {fit['factors']} factors: {fit['seconds']:.1f} s\n"
    )
    _step(console, f"3. What person {user} liked", "The model is told the likes, not the genres.")
    shown = screen.table("genre", "likes", "films", right=("likes",))
    for genre, titles in likes.items():
        some = ", ".join(titles[:3]) + (", …" if len(titles) > 3 else "")
        shown.add_row(genre, f"{len(titles)}", some)
    console.print(shown)
    _step(
        console,
        "4. Recommendations at three settings of the knob",
        "p(like) is the chance of a like once the film is considered, whatever its popularity, with a 90 % interval. "
        "The knob says how much popularity counts in the order. Beside it: the true probability, which only a "
        "made-up catalogue can tell.",
    )
    _show_answers(console, answers)
    _step(
        console,
        "5. How much of the truth came back",
        f"Over all {found.pairs:,} considered pairs. The fit never saw which were considered and not liked.",
    )
    _show_recovery(console, found)
    console.print(
        f"[dim]Done in {time.perf_counter() - begun:.1f} s. With your own likes:[/]\n"
        "   considerate inspect likes.parquet\n"
        "   considerate fit likes.parquet -o model.safetensors\n"
        "   considerate recommend model.safetensors USER"
    )


def _step(console: Any, title: str, text: str) -> None:
    from rich.padding import Padding

    console.print(f"[bold cyan]{title}[/]")
    console.print(Padding(text, (0, 0, 1, 3)))


KNOBS = {
    0.0: "knob 0: by liking alone",
    0.5: "knob 0.5: in between, the default",
    1.0: "knob 1: by the odds that a like is observed",
}


def _show_answers(console: Any, answers: dict[float, list[dict[str, Any]]]) -> None:
    right = ("likes", "p(like)", "90 % interval", "true p")
    shown = screen.table("film", "genre", *right, right=right)
    for knob, rows in answers.items():
        shown.add_row(f"[bold]{KNOBS[knob]}[/]")
        for place, row in enumerate(rows):
            shown.add_row(
                f"  {row['title']}",
                row["genre"],
                f"{row['likes']:,}",
                f"{row['p_like']:.2f}",
                f"{row['low']:.2f} – {row['high']:.2f}",
                f"[dim]{row['true']:.2f}[/]",
                end_section=place == len(rows) - 1,
            )
    console.print(shown)


def _show_recovery(console: Any, found: Recovery) -> None:
    from considerate.cli.text_charts import bar

    facts = screen.facts()
    facts.add_row("   correlation", f"{found.correlation:.2f} of true and inferred logits")
    facts.add_row("   error", f"{found.rmse:.2f} (RMSE of the logit, whose own spread is {found.spread:.2f})")
    facts.add_row(
        "   coverage",
        f"{found.coverage:.0%} of the true logits are in their 90 % interval: a factorised posterior is too narrow",
    )
    facts.add_row("   calibration", f"{found.calibration_error:.3f} expected calibration error of p(like)")
    console.print(facts)
    right = ("p(like) said", "pairs", "true p", "liked")
    shown = screen.table("p(like) said", "pairs", "true p", "liked", "", right=right)
    for one in found.bins:
        chart = bar(one.true, 1.0, 30)
        shown.add_row(
            f"{one.predicted:.2f}", f"{one.pairs:,}", f"{one.true:.2f}", f"{one.liked:.2f}", f"[cyan]{chart}[/]"
        )
    console.print(shown)
