"""What may be written to a table: by clients that know enough, with features that it may use.

Two questions are asked before every decision (RFC 0029). Does this client know what writers must
know? And may the table use what the decision uses?
"""

from __future__ import annotations

from collections.abc import Collection

from plait.definition.features import closed, refuse_unknown, unknown_of, usable
from plait.definition.table_def import TableDef
from plait.errors import FeatureError
from plait.state.state import TableState
from plait.timeline import paths


def require_writable(state: TableState) -> None:
    """Raise UnsupportedFeatureError if writers must know what this client does not."""
    strange = [f"property {key}" for key in state.table.strange]
    refuse_unknown([*unknown_of(state.writer_features), *strange], path=paths.slot(state.version))


def features_in_use(state: TableState, table: TableDef | None = None) -> tuple[str, ...]:
    """Return the features that a state uses, or that it would with another definition."""
    defined = state.table if table is None else table
    return (*state.lineage.features, *state.archive.features, *defined.features)


def usable_features(state: TableState) -> tuple[str, ...]:
    """Return what a table may use, beside what every client knows."""
    table = state.table
    return closed(usable(features_in_use(state), table.allowed, table.upgrades))


def may_use(state: TableState, feature: str) -> bool:
    """Tell whether a table may use a feature."""
    return feature in usable_features(state)


def require_usable(state: TableState, used: Collection[str], table: TableDef | None = None) -> None:
    """Refuse a decision that uses what the table may not use.

    Args:
        state: what it comes after.
        used: the features that it uses.
        table: the definition that it sets.

    Raises:
        FeatureError: with the names; nothing was written.
    """
    defined, before = state.table if table is None else table, features_in_use(state)
    may = {*before, *usable(before, defined.allowed, defined.upgrades)}
    off = [name for name in closed(used) if name not in may]
    if off:
        message = f"this needs {', '.join(off)}, which the table may not use"
        hint = f"`tablectl upgrade URI --features {off[0]}` allows it, and refuses older writers"
        raise FeatureError(message, hint=hint, features=off)
