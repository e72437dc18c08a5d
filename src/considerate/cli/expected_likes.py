"""Expected and observed likes, as `considerate inspect` and `considerate evaluate` print them."""

from __future__ import annotations

from typing import Any

from considerate.cli import screen
from considerate.evaluation.expected_likes import CAUTION, MOST_PAIRS, expected_likes, reason_against
from considerate.model.model import Model


def described_expected_likes(model: Model, most: int = MOST_PAIRS) -> dict[str, Any]:
    """Return the table of expected likes as plain values, or None and the reason why there is none."""
    reason = reason_against(model)
    if reason is not None:
        return {"expected_likes": None, "expected_likes_reason": reason}
    found = expected_likes(model, most=most)
    counted = {"expected_likes_users": {"counted": found.users, "all": found.population}}
    return {"expected_likes": found.to_list(), "expected_likes_reason": None} | counted


def show_expected_likes(values: dict[str, Any]) -> None:
    """Print the table, or the reason why there is none."""
    screen.show()
    if values["expected_likes"] is None:
        screen.show(f"no expected likes: {values['expected_likes_reason']}", style="dim")
        return
    columns = {"of": "{side}", ">degree": "{degree}", ">likes": "{likes:,}", ">expected": "{expected:,.0f}"}
    columns[">expected / likes"] = "{ratio:.2f}"
    note, users = CAUTION, values["expected_likes_users"]
    if users["counted"] < users["all"]:
        columns[">error"] = "{error:.2f}"
        note += f"; of {users['counted']:,} users, drawn from {users['all']:,}"
    screen.show_table(columns, values["expected_likes"], "likes that the model expects, and likes in the data", note)
