"""`python -m studies.recalibration` on real data: few judged pairs help, and harm nowhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from studies.recalibration import COUNTS, DRAWS, MOST_HARM, Figures, draws, judged_pairs, measure, targets


@pytest.mark.parametrize(("name", "gain"), [("coat", 0.03), ("ml-100k", 0.002)])
def test_covariates_help_and_do_no_harm(data_dir: Path, name: str, gain: float) -> None:
    judged = judged_pairs(data_dir, name, 0)
    assert judged.training == (91 if name == "coat" else 0)
    for count in (50, 300):
        (_, line, best) = measure(judged, count).values
        assert best[1] <= line[1] + MOST_HARM
        assert best[0] >= line[0] - 0.002
    assert best[1] < line[1] - gain


def test_draws_have_no_pair_in_both_parts(data_dir: Path) -> None:
    judged = judged_pairs(data_dir, "coat", 0)
    seen = set()
    for some, others in draws(judged, 300, 0, DRAWS):
        parts = [set(zip(part.users.tolist(), part.items.tolist())) for part in (some, others)]
        assert not parts[0] & parts[1]
        assert sum(map(len, parts)) == len(judged)
        seen.add(frozenset(parts[0]))
    assert len(seen) == DRAWS


def test_a_target_is_met_or_not() -> None:
    values = np.array([[0.5, 0.7, 0.1], [0.6, 0.6, 0.1], [0.75, 0.59, 0.1]])
    found = dict.fromkeys(COUNTS, Figures(values, 5, 2000))
    said = [line.rpartition(": ")[2] for line in targets("coat", found)]
    assert said == ["not met", "met", "met"]
    values = values.copy()
    values[2, 1] = values[1, 1] + 0.003
    (harm,) = targets("ml-100k", found | {50: Figures(values, 5, 2000)})
    assert harm.endswith("+0.0030, target 0.002: not met")
