"""Traces: what a store saw of the commit protocol, as events of the specification.

Put a ``RecordingStore`` around the store of each client, innermost of all wrappers, so that it
sees what happened and not what was told. The events are those of ``docs/spec/trace.tla``, which
judges whether they are a behaviour of the protocol.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from plait.errors import CorruptMetadataError, InvariantError
from plait.files.data_file import parse_path
from plait.model.bucket import partition_path
from plait.model.decision import Decision
from plait.model.instant import Instant
from plait.storage.port import FileInfo, Store
from plait.testing.wrapper import WrappedStore
from plait.timeline import paths
from plait.timeline.log import Timeline
from plait.txn.conflict import touched_buckets

T = TypeVar("T")
Mark = tuple[str, str]
"""A data file as the specification sees it: its writer, its place."""
Fact = str | int | frozenset[str] | frozenset[Mark]
_SLOTS = f"{paths.TIMELINE}/"
_RECORD = ".requested"
_LISTINGS = {paths.PENDING: "records", paths.LEASES: "leases"}


@dataclass(frozen=True, slots=True)
class Event:
    """One change of what is stored, or a listing: ``do`` and ``who``, then what it is about."""

    do: str
    who: str
    facts: Mapping[str, Fact]


@dataclass(slots=True)
class Trace:
    """What the clients of one table did, in order. Versions count from 1, the table's creation."""

    events: list[Event] = field(default_factory=list)
    owners: dict[str, str] = field(default_factory=dict)
    """The client of each nonce."""
    mutex: threading.RLock = field(default_factory=threading.RLock)

    def add(self, do: str, who: str, **facts: Fact) -> None:
        """Note an event."""
        self.events.append(Event(do, who, facts))

    def told(self, who: str, what: str) -> None:
        """Note what a writer was told: ``committed``, ``failed`` or ``unknown``."""
        self.add("told", who, what=what)

    def own(self, instant: Instant, who: str) -> None:
        """Note whose an instant is. In the specification a writer has one."""
        if who in self.owners.values():
            message = f"{who} begins a second instant; give each attempt a client of its own"
            raise InvariantError(message)
        self.owners[instant.nonce] = who

    def mark(self, path: str) -> Mark | None:
        """Give writer and place of a data file; None for any other."""
        name = parse_path(path)
        if name is None or name.instant.nonce not in self.owners:
            return None
        return self.owners[name.instant.nonce], _place(name.directory, name.bucket)


class RecordingStore(WrappedStore):
    """Notes what one client changes. Calls of all clients of a trace happen one by one.

    >>> from plait.storage import open_store
    >>> trace = Trace()
    >>> store = RecordingStore(open_store("memory://trace-doc"), trace, "w1")
    >>> instant = Instant.at(0, "f" * 16)
    >>> store.put(paths.requested(instant), b'{"v0": 3}')
    >>> trace.events
    [Event(do='begin', who='w1', facts={'version': 4})]
    """

    def __init__(self, inner: Store, trace: Trace, who: str) -> None:
        super().__init__(inner)
        self.trace, self._who = trace, who

    def who(self) -> str:
        """Tell which client calls. Where one store serves several, a subclass knows."""
        return self._who

    def call(self, operation: str, path: str, run: Callable[[], T]) -> T:
        """Make one call while no other is made; an opened data file counts as there."""
        with self.trace.mutex:
            result = run()
            if operation == "open_output":
                self._staged(path)
            return result

    def put(self, path: str, body: bytes) -> None:
        """Write a whole file: a record, a lease, a data file."""
        with self.trace.mutex:
            fresh = not self._there(path)
            super().put(path, body)
            if fresh:
                self._wrote(path, body)

    def put_if_absent(self, path: str, body: bytes) -> bool:
        """Write a whole file if the name is free; a slot that is won is a decision."""
        with self.trace.mutex:
            won = super().put_if_absent(path, body)
            if won and path.startswith(_SLOTS):
                number = int(path.rsplit("/", 1)[-1].removesuffix(".json"))
                self._published(Timeline(self.inner).decode(number, body))
            return won

    def list(self, prefix: str) -> Iterator[FileInfo]:
        """List files."""
        with self.trace.mutex:
            found = list(super().list(prefix))
            if prefix in _LISTINGS:
                self.trace.add("list", self.who(), what=_LISTINGS[prefix])
        yield from found

    def delete(self, paths: Iterable[str]) -> None:
        """Delete files, one by one; what is not there is no event."""
        for path in paths:
            with self.trace.mutex:
                there = self._there(path)
                super().delete([path])
                if there:
                    self._deleted(path)

    def _there(self, path: str) -> bool:
        try:
            return self.inner.find(path) is not None
        except CorruptMetadataError:  # too large to be read whole
            return True

    def _wrote(self, path: str, body: bytes) -> None:
        directory, _, name = path.rpartition("/")
        if directory == paths.PENDING and name.endswith(_RECORD):
            self.trace.own(_instant(name), self.who())
            self.trace.add("begin", self.who(), version=int(json.loads(body)["v0"]) + 1)
        elif directory == paths.LEASES:
            self.trace.add("lease", self.who(), version=int(name.split("-", 1)[0]) + 1)
        else:
            self._staged(path)

    def _staged(self, path: str) -> None:
        mark = self.trace.mark(path)
        if mark is not None:
            self.trace.add("stage", self.who(), place=mark[1])

    def _deleted(self, path: str) -> None:
        directory, _, name = path.rpartition("/")
        mark = self.trace.mark(path)
        if mark is not None:
            self.trace.add("unlink", self.who(), of=mark[0], place=mark[1])
        elif directory == paths.PENDING and name.endswith(_RECORD):
            self.trace.add("forget", self.who(), of=self.trace.owners[_instant(name).nonce])
        elif directory == paths.LEASES:
            self.trace.add("release", self.who())

    def _published(self, decision: Decision) -> None:
        cleaned = decision.cleaned
        dropped = [decision.changes.removed, decision.changes.garbage]
        places = touched_buckets(decision.changes)
        self.trace.add(
            "publish",
            self.who(),
            version=decision.version + 1,
            kind=decision.action.value,
            base=decision.base + 1,
            ends=frozenset(self.trace.owners[e.instant.nonce] for e in decision.rolled_back),
            places=frozenset(_place(partition_path(p), bucket) for p, bucket in places),
            drops=self._marks(path for table in dropped for path in table["path"].to_pylist()),
            condemns=self._marks(path for path, _ in cleaned.condemned) if cleaned else frozenset(),
        )

    def _marks(self, files: Iterable[str]) -> frozenset[Mark]:
        found = (self.trace.mark(path) for path in files)
        return frozenset(mark for mark in found if mark is not None)


def _instant(name: str) -> Instant:
    return Instant.parse(name.split(".", 1)[0])


def _place(directory: str, bucket: int) -> str:
    return f"{directory}/{bucket}"
