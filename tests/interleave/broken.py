"""Protocols that leave out one rule each: what the scheduler must find, or it finds nothing.

Each is the real code with one narrow thing replaced, here in the tests only.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import pyarrow as pa

from plait.errors import RolledBackError
from plait.locks.port import LockProvider
from plait.locks.process import NoLock
from plait.model.changes import KEYS_FILES, TOUCHED, WriteStatus
from plait.model.decision import Cleaned, CommitResult, Decision
from plait.services.maintenance import clean as cleaning
from plait.services.maintenance.clean import CleanReport, clean
from plait.state.checkpoint import list_checkpoints
from plait.state.state import TableState
from plait.storage.port import Store
from plait.testing.wrapper import WrappedStore
from plait.timeline import paths
from plait.timeline.pending import load_pending
from plait.txn.rollback import delete_files_of, find_outcome
from plait.txn.table_handle import TableHandle
from plait.txn.transaction import OptimisticTransaction
from tests.interleave.actors import Writer
from tests.scheduler import Act, End, Oracle, Problem
from tests.support.protocol import Hand

ABORTED = ".meta/aborted"


class Consequences(Oracle):
    """Not the broken rule itself, but what comes of it: nothing is found by the deed alone."""

    def judge(self, end: End, watch: object, check: object) -> list[Problem]:  # type: ignore[override]
        found = super().judge(end, watch, check)  # type: ignore[arg-type]
        return [problem for problem in found if problem.promise != "INV-06"]


# --- (a) a lock without slots ---------------------------------------------------------------


class LockedSlots(WrappedStore):
    """Publishes by a look and a plain put under the lock: right as long as the lock is held."""

    def __init__(self, inner: Store, lock: LockProvider) -> None:
        super().__init__(inner)
        self._lock = lock

    def put_if_absent(self, path: str, body: bytes) -> bool:
        if not path.startswith(paths.TIMELINE):
            return self.inner.put_if_absent(path, body)
        with self._lock.acquire(wait_s=60.0, owner="publisher"):
            if self.inner.find(path) is not None:
                return False
            self.inner.put(path, body)
            return True


def under_a_lock(act: Act) -> Act:
    def run(handle: TableHandle) -> object:
        return act(replace(handle, store=LockedSlots(handle.store, handle.lock), lock=NoLock()))

    return run


# --- (b) rollback outside the slots ---------------------------------------------------------


def mark_and_delete(handle: TableHandle) -> None:
    """Take everybody for dead: leave a marker, delete the files."""
    for pending in load_pending(handle.store):
        state = handle.cache.refresh()
        if find_outcome(handle, state, pending.instant, pending.v0) is None:
            handle.store.put(f"{ABORTED}/{pending.instant}", b"dead")
            delete_files_of(handle, pending.instant, [()])
        handle.store.delete(pending.records)


class Marked(Writer):
    """Looks for a marker before it publishes."""

    def __call__(self, handle: TableHandle) -> CommitResult:
        work = self.begin(handle)
        if handle.store.find(f"{ABORTED}/{work.txn.instant}") is not None:
            work.txn.abort("marked")
            message = "marked as dead"
            raise RolledBackError(message, hint="", instant=str(work.txn.instant))
        return work.commit()


# --- (c) conflicts by file id ---------------------------------------------------------------


class FileIdHand(Hand):
    """Says which file group it wrote: the one that it replaced, or a new one of its own."""

    def stage(self, snapshot: object, buckets: object = None) -> WriteStatus:
        status = super().stage(snapshot, buckets)  # type: ignore[arg-type]
        replaced = status.changes.removed["path"].to_pylist()
        groups = replaced or [str(self._txn.instant)]
        touched = [
            {"partition": "[]", "bucket": _number(each), "keys": KEYS_FILES, "key_count": 1}
            for each in groups
        ]
        changes = replace(status.changes, touched=pa.Table.from_pylist(touched, schema=TOUCHED))
        return replace(status, changes=changes)


def _number(text: str) -> int:
    return sum(ord(letter) * 31**at for at, letter in enumerate(text)) % (1 << 30)


# --- (d) a slot name that goes away ---------------------------------------------------------


@dataclass(frozen=True)
class Archiver:
    """Puts decisions that a checkpoint holds away; the slot is emptied, or deleted."""

    delete: bool

    def __call__(self, handle: TableHandle) -> None:
        newest = max(list_checkpoints(handle.store), default=0)
        for version in range(1, newest + 1):
            body = handle.store.find(paths.slot(version))
            if not body:
                continue
            handle.store.put(f".meta/archive/{version}", body)
            if self.delete:
                handle.store.delete([paths.slot(version)])
            else:
                handle.store.put(paths.slot(version), b"")


# --- (e) the own rollback is not looked for from v0 on --------------------------------------


class Forgetful(OptimisticTransaction):
    """Takes the head for its base, and does not ask what became of it meanwhile."""

    def _look_back(self) -> None:
        assert callable(OptimisticTransaction._look_back), "the rule has moved: leave it out there"


# --- (f) an instant with a file is forgotten ------------------------------------------------


def forget(handle: TableHandle) -> str:
    """Stage a file, and end without a decision, as if there were none."""
    Writer("forgotten").begin(handle).txn.abort("forgotten", wrote=False)
    return "forgotten"


# --- (g) leases listed too early ------------------------------------------------------------


def early_clean(handle: TableHandle) -> CleanReport:
    """Clean by the leases and records of before the decision."""
    with needed_asked_once():
        return clean(handle)


@contextlib.contextmanager
def needed_asked_once() -> Iterator[None]:
    """Let a clean ask once what is needed, before it publishes; and believe it for ever."""
    real: Callable[[TableHandle], int | None] = cleaning._needed_from
    known: dict[int, int | None] = {}

    def once(handle: TableHandle) -> int | None:
        if id(handle) not in known:
            known[id(handle)] = real(handle)
        return known[id(handle)]

    with replaced("_needed_from", once):
        yield


# --- (h) a clean that does not plan again ---------------------------------------------------


def stubborn_clean(handle: TableHandle) -> CleanReport:
    """Clean by the plan, whatever was decided since: an undo too."""
    plan = cleaning.plan_clean(handle)
    cleaned = Cleaned(plan.horizon, plan.final, plan.condemned)

    def draft(own: Any, state: TableState, _: object) -> Decision:
        return cleaning._clean_draft(own.handle, state, cleaned)

    with mock.patch.object(cleaning._Drafts, "draft", draft):
        return clean(handle, plan)


@contextlib.contextmanager
def replaced(name: str, by: Callable[..., object]) -> Iterator[None]:
    """Let every clean do something else meanwhile."""
    real = getattr(cleaning, name)
    setattr(cleaning, name, by)
    try:
        yield
    finally:
        setattr(cleaning, name, real)
