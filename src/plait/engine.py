"""The engine port: who turns rows into staged files. Arrow is the default; Spark registers.

An engine is found by the data: ``engine_for(data)`` asks the engines named in the entry points
``plait.engines`` whose key is the top module of the data's type (``pyspark``), then Arrow. Spark
is asked first for its own DataFrames, although they offer ``__arrow_c_stream__`` too, so that no
row of theirs passes through the driver.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import entry_points
from typing import ClassVar, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from plait.errors import InvariantError, OptionError, RetryableConflictError
from plait.model.bucket import BucketId, Partition
from plait.model.changes import Digest, WriteStatus
from plait.model.decision import ReadSet
from plait.model.plan import Snapshot
from plait.model.request import FileSet, WritePlan
from plait.model.sink_ledger import TaskLedger
from plait.model.store_address import StoreAddress

GROUP = "plait.engines"


class Relay(Protocol):
    """Sends the rows of one task to the sinks, on an executor: a value that can be pickled."""

    def stage(
        self, inner: Staging, plan: WritePlan, task: str, rows: object, snapshot: Snapshot
    ) -> tuple[WriteStatus, TaskLedger | None]:
        """Send rows to every sink, then stage them; ``task`` names this attempt alone.

        Raises:
            ReplicationError: a sink failed. The task must fail, and be run again with all rows.
            RolledBackError: the commit was decided without this attempt.
        """
        ...


class Staging(ABC):
    """One writer's work in one engine. Nothing that it writes is visible before publish.

    Three methods do the work. The others have defaults that are right, if slow, for every
    engine: whatever a staging does not know counts as possible.
    """

    engine: ClassVar[str] = ""
    """The name of its engine, for errors."""

    @abstractmethod
    def write(self, data: object) -> None:
        """Take rows. Bad input raises SchemaError before a file of it is written."""

    @abstractmethod
    def stage(self, snapshot: Snapshot, buckets: frozenset[BucketId] | None) -> WriteStatus:
        """Finish the files on top of a snapshot and return the status of the whole operation.

        The first call has ``buckets=None``: everything. Later calls redo just the buckets named,
        on a newer snapshot, and again give the status of the whole; files that this makes
        useless are in its ``garbage``. Everything named is durable on return.
        """

    @abstractmethod
    def close(self) -> None:
        """Drop what is held locally (buffers, spilled runs); staged files stay."""

    def remove(self, keys: object) -> None:
        """Take keys to remove, with every row of theirs that came before.

        Raises:
            OptionError: the engine or the operation takes no removals.
        """
        del keys
        message = f"the engine {self.engine} does not take removals among rows"
        hint = "merge with a Delete clause, or write Arrow data"
        raise OptionError(message, hint=hint, key="keys", value=self.engine)

    def restaged(self, plan: WritePlan) -> Staging:
        """Return a staging of the same rows under another layout of the table; close this one.

        The files that were staged are in the garbage of its status.

        Raises:
            RetryableConflictError: the operation would mean something else there, or the engine
                cannot stage rows again.
        """
        del plan
        message = f"the layout changed, and the engine {self.engine} cannot stage rows again"
        raise RetryableConflictError(message, hint="run the write again")

    @property
    def read_set(self) -> ReadSet | None:
        """What was read of the table to compute the rows; None if nothing was, or nobody knows."""
        return None

    @property
    def wrote(self) -> bool:
        """Whether a file of it may be on the store."""
        return True

    def reach(self) -> frozenset[Partition] | None:
        """Return the partitions in which files are looked at, once all rows came; None: any."""
        return None

    def keys_asked(self) -> tuple[npt.NDArray[np.uint64], frozenset[Partition]] | None:
        """Return the hashes of the keys that came, and the partitions that may get their rows.

        Sorted, each once. None: they are not known, they are too many to be looked up one by one,
        or all rows of the table are looked at.
        """
        return None

    # --- the dual write, where tasks in other processes stage -------------------------------

    @property
    def relays(self) -> bool:
        """Whether its tasks can send their rows to sinks before they stage them."""
        return False

    def relay_through(self, relay: Relay) -> None:
        """Have each task send its rows through this, from the first one on.

        Raises:
            InvariantError: it does not relay.
        """
        del relay
        raise InvariantError(f"the engine {self.engine} has no tasks that relay")

    @property
    def relayed(self) -> Sequence[TaskLedger]:
        """What the attempts that count sent to sinks, a task each."""
        return ()


class ForwardingStaging(Staging):
    """A staging around another one; a subclass overrides what it does itself.

    It does not relay: a wrapper has tasks of its own, or none.
    """

    def __init__(self, inner: Staging) -> None:
        """Wrap a staging, which is closed with this one."""
        self._inner = inner

    def write(self, data: object) -> None:
        """Take rows."""
        self._inner.write(data)

    def remove(self, keys: object) -> None:
        """Take keys to remove; raise OptionError if the inner staging takes none."""
        self._inner.remove(keys)

    def stage(self, snapshot: Snapshot, buckets: frozenset[BucketId] | None) -> WriteStatus:
        """Finish the files on top of a snapshot and return the status of the whole operation."""
        return self._inner.stage(snapshot, buckets)

    def restaged(self, plan: WritePlan) -> Staging:
        """Stage the same rows under another layout; raise RetryableConflictError if it cannot."""
        self._inner = self._inner.restaged(plan)
        return self

    @property
    def read_set(self) -> ReadSet | None:
        """What was read of the table to compute the rows."""
        return self._inner.read_set

    @property
    def wrote(self) -> bool:
        """Whether a file of it may be on the store."""
        return self._inner.wrote

    def reach(self) -> frozenset[Partition] | None:
        """Return the partitions in which files are looked at; None: any."""
        return self._inner.reach()

    def keys_asked(self) -> tuple[npt.NDArray[np.uint64], frozenset[Partition]] | None:
        """Return the hashes of the keys that came, and the partitions that may get their rows."""
        return self._inner.keys_asked()

    def close(self) -> None:
        """Close the inner staging."""
        self._inner.close()


class Engine(ABC):
    """Stages rows of the kinds of data that it accepts.

    By default an engine works in this process and without a session, and neither tells columns
    nor rewrites files.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """Return the engine's name, for errors and client facts."""

    @abstractmethod
    def accepts(self, data: object) -> bool:
        """Tell whether this engine takes such data."""

    @abstractmethod
    def staging(self, plan: WritePlan, announce: Callable[[Iterable[Partition]], None]) -> Staging:
        """Begin. ``announce`` must have returned before a file appears in a new partition.

        It raises RolledBackError once the instant was ended by somebody else. Ask it with nothing
        before each piece of work that takes long, and stop.
        """

    @abstractmethod
    def digest(self, data: object, plan: WritePlan) -> Digest:
        """Return the digest of rows without writing them, as staging them would give it."""

    def opened(self, data: object) -> tuple[object, pa.Schema]:
        """Return data that can be written in its place, and its columns.

        Raises:
            OptionError, SchemaError: this is no kind of data that can be written.
            OptionError: the engine cannot tell the columns before the data is written.
        """
        del data
        message = f"the engine {self.name} does not add columns"
        raise OptionError(message, hint="omit evolve='add'", key="evolve", value="add")

    def within(self, session: object) -> Engine | None:
        """Return the engine that works in this session; None if it knows no sessions.

        Raises:
            OptionError: it knows sessions, and this is none.
        """
        del session
        return None

    def require_reachable(self, store: StoreAddress) -> None:
        """Raise CapabilityMissingError if its processes cannot reach a store."""
        del store  # this process opened it

    @property
    def width(self) -> int:
        """How many sets of files it rewrites at once.

        Raises:
            OptionError: it rewrites none.
        """
        raise self._cannot_rewrite()

    def rewrite(
        self,
        plan: WritePlan,
        snapshot: Snapshot,
        sets: Sequence[FileSet],
        announce: Callable[[Iterable[Partition]], None],
    ) -> WriteStatus:
        """Put the visible rows of each set into one file; return the status of all of them.

        Sets that are one file without hidden rows by now are left out. Everything is durable on
        return. ``announce`` is as in ``staging``.

        Raises:
            OptionError: it rewrites none.
        """
        del plan, snapshot, sets, announce
        raise self._cannot_rewrite()

    def _cannot_rewrite(self) -> OptionError:
        message = f"the engine {self.name} cannot rewrite files"
        return OptionError(message, hint="leave spark= out", key="spark", value=self.name)


@functools.cache
def _engines(module: str) -> tuple[Engine, ...]:
    return tuple(point.load()() for point in entry_points(group=GROUP, name=module))


def engine_for(data: object, default: Engine) -> Engine:
    """Return the engine for this data; raise OptionError if none takes it."""
    for engine in _engines(type(data).__module__.split(".", 1)[0]):
        if engine.accepts(data):
            return engine
    if default.accepts(data):
        return default
    message = f"cannot write a {type(data).__module__}.{type(data).__qualname__}"
    hint = "pass a Spark DataFrame, Arrow data, or an object with __arrow_c_stream__"
    raise OptionError(message, hint=hint, key="data", value=type(data).__qualname__)


def engine_within(session: object, default: Engine) -> Engine:
    """Return the engine that works in a session; the default where there is none.

    Raises:
        OptionError: no engine knows such a session.
    """
    if session is None:
        return default
    for engine in _engines(type(session).__module__.split(".", 1)[0]):
        if (found := engine.within(session)) is not None:
            return found
    kind = type(session).__qualname__
    message = f"no engine works in a session of type {type(session).__module__}.{kind}"
    raise OptionError(message, hint="pass a SparkSession", key="spark", value=kind)


def require_session(session: object, default: Engine, stores: Iterable[StoreAddress]) -> None:
    """Refuse a session that cannot work on some stores, before anything is written.

    Raises:
        OptionError: no engine knows such a session.
        CapabilityMissingError: its processes cannot reach a store.
    """
    engine = engine_within(session, default)
    for store in stores:
        engine.require_reachable(store)
