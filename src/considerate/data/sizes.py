"""What is odd about the size of the data, said to the user."""

from __future__ import annotations

import logging
import warnings

from considerate.errors import DataError

logger = logging.getLogger("considerate")


def looks_swapped(users: int, items: int) -> bool:
    """Whether there are so many items for the users that the two may have been exchanged."""
    return items > 20 * users and items > 1000


def check_sizes(
    source: str,
    users: int,
    items: int,
    duplicates: int,
    active: tuple[int, int] | None = None,
    stacklevel: int = 3,
) -> None:
    """Say that pairs were folded, refuse a single user or item with likes, warn where the two may be swapped.

    `active` are the users and the items with likes, where these are not all.
    """
    active_users, active_items = active or (users, items)
    if duplicates:
        logger.warning("%s: %d duplicate pairs were folded into one like each", source, duplicates)
    if active_items < 2:
        raise DataError(f"{source}: there is only one item with likes; at least two are needed to choose from.")
    if active_users < 2:
        raise DataError(f"{source}: there is only one user with likes; at least two are needed to learn from.")
    if looks_swapped(users, items):
        warnings.warn(
            f"{source}: {items} items for {users} users. If users and items are "
            "swapped, swap --user-column and --item-column (or transpose the matrix); see `considerate inspect`.",
            stacklevel=stacklevel + 1,
        )
