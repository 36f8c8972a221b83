"""What a restore undid is never reported as applied, nor applied again unasked (INV-16)."""

from __future__ import annotations

from plait.errors import UndoneError
from plait.state.state import TableState
from plait.storage.port import Store


def contains(state: TableState, version: int) -> bool:
    """Tell whether the table contains what a version committed: no restore undid it."""
    return state.lineage.contains(version, state.version)


def find_commit(store: Store, state: TableState, commit_id: str) -> int | None:
    """Return the version of a commit id that the table contains; None if it may be committed.

    Raises:
        UndoneError: a restore undid it, and no replay names it since.
    """
    undone: list[int] = []
    for version in state.find_commits(store, commit_id):
        if contains(state, version):
            return version
        undone.append(version)
    if not undone:
        return None
    replays = [at for at, name in state.lineage.replays if name == commit_id]
    if any(contains(state, at) and at > undone[0] for at in replays):
        return None
    what = f"commit id {commit_id!r}"
    raise undone_error(what, state, undone[0], commit_id=commit_id)


def find_lost(state: TableState, application: str) -> int | None:
    """Return what decided where a stream continues, if a restore undid that version."""
    last = state.streams.get(application)
    since = state.lineage.restarts.get(application) if last is None else last.source
    return None if since is None or contains(state, since) else since


def require_contained(state: TableState, version: int) -> None:
    """Refuse to report a version as applied that a restore undid; raise UndoneError."""
    if version <= state.version and not contains(state, version):
        what = f"version {version}"
        raise undone_error(what, state, version)


def undone_error(what: str, state: TableState, version: int, **facts: object) -> UndoneError:
    """Say which restore undid a version, and how to go on."""
    restore = state.lineage.undone_by(version, state.version)
    message = f"{what} was committed in version {version}, and undone by the restore {restore}"
    hint = (
        "to write it again, decide so first: Table.replay or `tablectl replay`; "
        "to have it back, restore the version before the restore"
    )
    return UndoneError(message, hint=hint, version=version, restore=restore, **facts)
