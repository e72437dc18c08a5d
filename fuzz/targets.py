"""All targets, by name."""

from __future__ import annotations

from fuzz import bodies, files, kernels, rules, tables

ALL = {
    target.name: target
    for target in (
        *(files.CONTAINER, files.MODEL, files.CHECKPOINT, rules.TARGET, tables.CSV, tables.FEATURES),
        *(tables.IMPOSSIBLE, bodies.TARGET, files.EVENTS_FILE, kernels.TARGET),
    )
}
