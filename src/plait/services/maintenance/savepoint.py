"""Savepoints: names under which versions stay readable, whatever a clean deletes."""

from __future__ import annotations

import re

from plait.errors import InstantNotFoundError, OptionError
from plait.model.decision import Decision, Savepoint, SavepointChange
from plait.model.instant import Action, Operation
from plait.state.state import TableState
from plait.txn.matrix import KINDS, Kind
from plait.txn.service import publish_service
from plait.txn.table_handle import TableHandle, client
from plait.txn.time_travel import Moment, find_as_of, require_version

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)
_SAME_ROWS = {Kind.NOTE, Kind.REWRITE}


def set_savepoint(
    handle: TableHandle, name: str, *, version: int | None = None, as_of: Moment | None = None
) -> Savepoint:
    """Keep a version readable under a name, the newest one by default.

    To set the same savepoint again changes nothing.

    Raises:
        OptionError: an invalid name, or one that a version with other rows has.
        InstantError: the version cannot be read.
    """
    if not _NAME.fullmatch(name):
        message = f"invalid name of a savepoint: {name[:80]!r}"
        hint = "use 1 to 100 letters, digits, '.', '_' or '-'; begin with a letter or digit"
        raise OptionError(message, hint=hint, key="name", value=name[:80])
    wanted = find_target(handle, version=version, as_of=as_of)
    found: list[Savepoint] = []

    def draft(state: TableState) -> Decision | None:
        savepoint = Savepoint(name, state.version if wanted is None else wanted)
        known = state.lineage.find_savepoint(name)
        if known is not None and _is_same(handle, state, known, wanted):
            found[:] = [known]
            return None
        if known is not None:
            message = f"savepoint {name!r} is version {known.version} already"
            hint = "drop it first, or choose another name"
            raise OptionError(message, hint=hint, key="name", value=name)
        state.require_readable(savepoint.version)
        found[:] = [savepoint]
        return _draft(handle, state, SavepointChange(savepoint))

    publish_service(handle, draft)
    return found[0]


def _is_same(handle: TableHandle, state: TableState, known: Savepoint, wanted: int | None) -> bool:
    """Tell whether a savepoint is what is wanted; the newest version, as long as its rows are."""
    if wanted is not None:
        return wanted == known.version
    columns = ("version", "operation")
    since = state.commits(handle.store, since=known.version, columns=columns)
    kinds = {KINDS[Operation(each)] for each in since["operation"].unique().to_pylist()}
    return kinds <= _SAME_ROWS


def drop_savepoint(handle: TableHandle, name: str) -> Savepoint:
    """Let a savepoint go; its version stays readable only as long as others of its age.

    Raises:
        InstantNotFoundError: there is no such savepoint.
    """
    found = require_savepoint(handle.cache.refresh(), name)

    def draft(state: TableState) -> Decision | None:
        known = state.lineage.find_savepoint(name)
        if known != found:
            return None  # somebody else dropped it meanwhile
        return _draft(handle, state, SavepointChange(found, drop=True))

    publish_service(handle, draft)
    return found


def require_savepoint(state: TableState, name: str) -> Savepoint:
    """Return a savepoint by its name; raise InstantNotFoundError if there is none."""
    found = state.lineage.find_savepoint(name)
    if found is None:
        known = ", ".join(each.name for each in state.lineage.savepoints) or "none"
        message = f"there is no savepoint {name!r}"
        raise InstantNotFoundError(message, hint=f"savepoints: {known}", savepoint=name)
    return found


def find_target(
    handle: TableHandle,
    *,
    version: int | None = None,
    as_of: Moment | None = None,
    savepoint: str | None = None,
) -> int | None:
    """Return the version that is meant; None if nothing is named.

    Raises:
        OptionError: more than one is named, or it is no version.
        InstantNotFoundError: there is no such version.
    """
    named = {"version": version, "as_of": as_of, "savepoint": savepoint}
    given = [key for key, value in named.items() if value is not None]
    if len(given) > 1:
        message = f"name one version: {' and '.join(given)} are given"
        raise OptionError(message, hint=f"pass {given[0]} alone", key=given[1], value="")
    if version is not None:
        return require_version(version)
    state = handle.cache.refresh()
    if as_of is not None:
        return find_as_of(handle, state, as_of)
    return None if savepoint is None else require_savepoint(state, savepoint).version


def _draft(handle: TableHandle, state: TableState, change: SavepointChange) -> Decision:
    return Decision(
        instant=handle.new_instant(state),
        action=Action.SAVEPOINT,
        operation=Operation.SAVEPOINT,
        base=state.version,
        savepoint=change,
        client=client(),
    )
