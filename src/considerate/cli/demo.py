"""The command `considerate demo`."""

from __future__ import annotations

import time
from dataclasses import asdict
from itertools import chain
from typing import TYPE_CHECKING

from considerate.cli import screen
from considerate.cli.options import Output, Seed, expand_groups

if TYPE_CHECKING:
    from considerate.evaluation.calibration import Recovery

KNOBS = {
    0.0: "knob 0: by liking alone",
    0.5: "knob 0.5: in between, the default",
    1.0: "knob 1: by the odds that a like is observed",
}


@expand_groups
def demo(output: Output, seed: Seed = 0) -> None:
    """Take a tour in a few seconds: simulate a catalogue, fit it, recommend, and compare with the truth."""
    from considerate.cli import demo_catalogue as tour
    from considerate.cli.describe import describe_fit
    from considerate.cli.fit import steps_on_screen
    from considerate.evaluation.calibration import recovery as compare

    begun = time.perf_counter()
    catalogue = tour.make_catalogue(seed=seed)
    sample = catalogue.sample
    if not output.json:
        _step(
            "1. A simulated catalogue",
            f"{sample.user_count:,} people and {sample.item_count:,} films of eight genres, drawn from the model. Each "
            f"person considered some films, popular ones more often: {len(sample.liked):,} pairs. A coin, weighted by "
            f"taste, decided which of them were liked: {int(sample.liked.sum()):,} likes. Only the likes are kept; "
            "the pairs that were considered and not liked are forgotten, as in real data.",
        )
        _step("2. The fit", "Infer everyone's taste from the likes alone, with the forgotten pairs redrawn.")
    recommender = tour.make_recommender(seed=seed)
    request, quiet = recommender.fit_request(catalogue.interactions), output.quiet or output.json
    with screen.library_messages(output.quiet), steps_on_screen(recommender, request, quiet) as steps:
        for _ in steps:
            pass
    fit = describe_fit(recommender, time.perf_counter() - begun)
    user = tour.instructive_user(recommender, catalogue)
    likes = tour.tastes(recommender, catalogue, user)
    answers = {knob: tour.recommendations(recommender, catalogue, user, knob) for knob in KNOBS}
    pairs = sample.hidden_users, sample.hidden_items  # the fit saw which were liked, never which were not
    inferred = (*recommender.predict_logit(*pairs), recommender.predict_proba(*pairs))
    recovery = compare(sample.logit, sample.liked, *inferred)
    if output.json:
        recommendations = {f"{knob:g}": rows for knob, rows in answers.items()}
        values = {"fit": fit, "user": user, "likes": likes, "recovery": asdict(recovery)}
        screen.print_json(values | {"recommendations": recommendations})
        return
    numbers = f"{fit['sweeps']} sweeps, {fit['edges']:,} likes, {fit['factors']} factors: {fit['seconds']:.1f} s"
    screen.show(f"   {numbers}\n")
    _step(f"3. The likes of person {user}", "The model knows the likes, not the genres.")
    screen.show_table(
        {"genre": "{genre}", ">likes": "{count}", "films": "{films}"},
        (
            {"genre": genre, "count": len(titles), "films": ", ".join(titles[:3]) + ", …" * (len(titles) > 3)}
            for genre, titles in likes.items()
        ),
    )
    _step(
        "4. Recommendations at three settings of the knob",
        "p(like) is the chance of a like once the film is considered, whatever its popularity, with a 90 % interval. "
        "The knob sets how much popularity counts in the order. The last column is the true probability, which only "
        "a simulated catalogue has.",
    )
    columns = {"film": "  {title}", "genre": "{genre}", ">likes": "{likes:,}", ">p(like)": "{p_like:.2f}"}
    columns |= {">90 % interval": "{low:.2f} – {high:.2f}", ">true p": "{true:.2f}"}
    rows = chain.from_iterable([{"heading": KNOBS[knob]}, *films] for knob, films in answers.items())
    screen.show_table(columns, rows)
    _step(
        "5. How much of the truth was recovered",
        f"Over all {recovery.pairs:,} considered pairs. The fit never saw which were considered and not liked.",
    )
    _show_recovery(recovery)
    screen.show(
        screen.styled(
            (f"Done in {time.perf_counter() - begun:.1f} s. With your own likes:\n", "dim"),
            "   considerate inspect likes.parquet\n"
            "   considerate fit likes.parquet -o model.safetensors\n"
            "   considerate recommend model.safetensors USER",
        )
    )


def _step(title: str, text: str) -> None:
    from rich.padding import Padding

    screen.show(title, style="bold cyan")
    screen.show(Padding(text, (0, 0, 1, 3)))


def _show_recovery(recovery: Recovery) -> None:
    facts = {
        "   correlation": "{correlation:.2f} of true and inferred logits",
        "   error": "{rmse:.2f} (RMSE of the logit, whose own spread is {spread:.2f})",
        "   coverage": "{coverage:.0%} of the true logits are in their 90 % interval: a factorised posterior is too "
        "narrow",
        "   calibration": "{calibration_error:.3f} expected calibration error of p(like)",
    }
    screen.show_facts(facts, vars(recovery))
    columns = {">p(like)": "{predicted:.2f}", ">pairs": "{pairs:,}", ">true p": "{true:.2f}"}
    columns |= {">liked": "{liked:.2f}", "<": "{bar}"}
    screen.show_table(columns, (vars(row) | {"bar": screen.bar(row.true, 1.0, 30)} for row in recovery.bins))
