"""Protocols that leave out one rule each: what the scheduler must find, or it finds nothing.

Each is the real code with one narrow thing replaced, here in the tests only.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from plait.errors import RolledBackError
from plait.locks.none import NoLock
from plait.locks.port import LockProvider
from plait.model.changes import KEYS_FILES, TOUCHED, WriteStatus
from plait.model.decision import CommitResult
from plait.services import clean as cleaning
from plait.services.clean import CleanReport, clean
from plait.state.checkpoint import list_checkpoints
from plait.storage.port import Store
from plait.testing.scheduler import Act, End, Oracle, Problem
from plait.testing.wrapper import WrappedStore
from plait.timeline import paths
from plait.timeline.pending import load_pending
from plait.txn.rollback import delete_files_of, find_outcome
from plait.txn.site import Site
from plait.txn.transaction import Transaction
from tests.interleave.actors import Writer
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
    def run(site: Site) -> object:
        return act(replace(site, store=LockedSlots(site.store, site.lock), lock=NoLock()))

    return run


# --- (b) rollback outside the slots ---------------------------------------------------------


def mark_and_delete(site: Site) -> None:
    """Take everybody for dead: leave a marker, delete the files."""
    for pending in load_pending(site.store):
        state = site.cache.refresh()
        if find_outcome(site, state, pending.instant, pending.v0) is None:
            site.store.put(f"{ABORTED}/{pending.instant}", b"dead")
            delete_files_of(site, pending.instant, [()])
        site.store.delete(pending.records)


class Marked(Writer):
    """Looks for a marker before it publishes."""

    def __call__(self, site: Site) -> CommitResult:
        work = self.begin(site)
        if site.store.find(f"{ABORTED}/{work.txn.instant}") is not None:
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

    def __call__(self, site: Site) -> None:
        newest = max(list_checkpoints(site.store), default=0)
        for version in range(1, newest + 1):
            body = site.store.find(paths.slot(version))
            if not body:
                continue
            site.store.put(f".meta/archive/{version}", body)
            if self.delete:
                site.store.delete([paths.slot(version)])
            else:
                site.store.put(paths.slot(version), b"")


# --- (e) the own rollback is not looked for from v0 on --------------------------------------


class Forgetful(Transaction):
    """Takes the head for its base, and does not ask what became of it meanwhile."""

    def _look_back(self) -> None:
        assert callable(Transaction._look_back), "the rule has moved: leave it out there"


# --- (f) leases listed too early ------------------------------------------------------------


def early_clean(site: Site) -> CleanReport:
    """Clean by the leases and records of before the decision."""
    with needed_asked_once():
        return clean(site)


@contextlib.contextmanager
def needed_asked_once() -> Iterator[None]:
    """Let a clean ask once what is needed, before it publishes; and believe it for ever."""
    real: Callable[[Site], int | None] = cleaning._needed_from
    known: dict[int, int | None] = {}

    def once(site: Site) -> int | None:
        if id(site) not in known:
            known[id(site)] = real(site)
        return known[id(site)]

    cleaning._needed_from = once
    try:
        yield
    finally:
        cleaning._needed_from = real
