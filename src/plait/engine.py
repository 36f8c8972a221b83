"""The engine port: who turns rows into staged files. Arrow is the default; Spark registers.

An engine is found by the data: ``engine_for(data)`` asks the engines named in the entry points
``plait.engines`` whose key is the top module of the data's type (``pyspark``), then Arrow. Spark
is asked first for its own DataFrames, although they offer ``__arrow_c_stream__`` too, so that no
row of theirs passes through the driver.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import entry_points
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from plait.errors import OptionError
from plait.model.bucket import BucketId, Partition
from plait.model.changes import Digest, WriteStatus
from plait.model.decision import ReadSet
from plait.model.plan import Snapshot, StoreSpec
from plait.model.request import FileSet, WritePlan

GROUP = "plait.engines"


class Staging(Protocol):
    """One writer's work in one engine. Nothing that it writes is visible before publish."""

    def write(self, data: object) -> None:
        """Take rows. Bad input raises SchemaError before a file of it is written."""
        ...

    def stage(self, snapshot: Snapshot, buckets: frozenset[BucketId] | None) -> WriteStatus:
        """Finish the files on top of a snapshot and return the status of the whole operation.

        The first call has ``buckets=None``: everything. Later calls redo just the buckets named,
        on a newer snapshot, and again give the status of the whole; files that this makes
        useless are in its ``garbage``. Everything named is durable on return.
        """
        ...

    def close(self) -> None:
        """Drop what is held locally (buffers, spilled runs); staged files stay."""
        ...


@runtime_checkable
class Traced(Protocol):
    """A staging whose data may tell what it was computed from."""

    @property
    def read_set(self) -> ReadSet | None:
        """What was read of the table; None if nothing was, or nobody can tell."""
        ...


@runtime_checkable
class Counted(Protocol):
    """A staging that knows whether it has begun to write."""

    @property
    def wrote(self) -> bool:
        """Whether a file of it may be on the store."""
        ...


@runtime_checkable
class Removing(Protocol):
    """A staging that takes removals of keys among its rows."""

    def remove(self, keys: object) -> None:
        """Take keys to remove, with every row of theirs that came before.

        Raises:
            OptionError: the operation takes no removals.
        """
        ...


@runtime_checkable
class Restaging(Protocol):
    """A staging that can give its rows to another one when the table is laid out anew."""

    def restaged(self, plan: WritePlan) -> Staging:
        """Return a staging of the same rows under another layout of the table; close this one.

        The files that were staged are in the garbage of its status.

        Raises:
            RetryableConflictError: the operation would mean something else there.
        """
        ...


@runtime_checkable
class Reaching(Protocol):
    """A staging that knows in which partitions it looks at files, once all rows came."""

    def reach(self) -> frozenset[Partition] | None:
        """Return these partitions; None: maybe any."""
        ...


@runtime_checkable
class Locating(Protocol):
    """A staging whose keys any partition may have, and that can tell which keys they are."""

    def keys_asked(self) -> tuple[npt.NDArray[np.uint64], frozenset[Partition]] | None:
        """Return the hashes of the keys that came, and the partitions that may get their rows.

        Sorted, each once. None: they are too many to be looked up one by one, or all rows of the
        table are looked at.
        """
        ...


def reached_by(staging: Staging) -> frozenset[Partition] | None:
    """Return the partitions in which a staging looks at files; None: maybe any."""
    return staging.reach() if isinstance(staging, Reaching) else None


def may_have_written(staging: Staging | None) -> bool:
    """Tell whether a file of a staging may be on the store; one that does not know may have."""
    if staging is None:
        return False
    return staging.wrote if isinstance(staging, Counted) else True


def read_by(staging: Staging) -> ReadSet | None:
    """Return what the rows of a staging were computed from, where their data tells."""
    return staging.read_set if isinstance(staging, Traced) else None


class Engine(Protocol):
    """Stages rows of the kinds of data that it accepts."""

    @property
    def name(self) -> str:
        """Its name, for errors and client facts."""
        ...

    def accepts(self, data: object) -> bool:
        """Tell whether this engine takes such data."""
        ...

    def staging(self, plan: WritePlan, announce: Callable[[Iterable[Partition]], None]) -> Staging:
        """Begin. ``announce`` must have returned before a file appears in a new partition.

        It raises RolledBackError once the instant was ended by somebody else. Ask it with nothing
        before each piece of work that takes long, and stop.
        """
        ...

    def digest(self, data: object, plan: WritePlan) -> Digest:
        """Return the digest of rows without writing them, as staging them would give it."""
        ...


@runtime_checkable
class Opening(Protocol):
    """An engine that can tell the columns of data before it is written."""

    def opened(self, data: object) -> tuple[object, pa.Schema]:
        """Return data that can be written in its place, and its columns.

        Raises:
            OptionError, SchemaError: this is no kind of data that can be written.
        """
        ...


@runtime_checkable
class EngineOfSessions(Protocol):
    """An engine that works in a session of its own system, also where no rows come."""

    def within(self, session: object) -> Engine:
        """Return the engine that works in this session; raise OptionError if it is none."""
        ...

    def require_reachable(self, store: StoreSpec) -> None:
        """Raise CapabilityMissingError if the processes of its sessions cannot reach a store."""
        ...


@runtime_checkable
class Rewriting(Protocol):
    """An engine that rewrites sets of files, in this process or on executors."""

    @property
    def width(self) -> int:
        """How many sets it rewrites at once."""
        ...

    def rewrite(
        self,
        plan: WritePlan,
        snapshot: Snapshot,
        sets: Sequence[FileSet],
        announce: Callable[[Iterable[Partition]], None],
    ) -> WriteStatus:
        """Put the visible rows of each set into one file; return the status of all of them.

        Sets that are one file without hidden rows by now are left out. Everything is durable on
        return. ``announce`` is as in ``Engine.staging``.
        """
        ...


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
        if isinstance(engine, EngineOfSessions):
            return engine.within(session)
    kind = type(session).__qualname__
    message = f"no engine works in a session of type {type(session).__module__}.{kind}"
    raise OptionError(message, hint="pass a SparkSession", key="spark", value=kind)


def require_session(session: object, default: Engine, stores: Iterable[StoreSpec]) -> None:
    """Refuse a session that cannot work on some stores, before anything is written.

    Raises:
        OptionError: no engine knows such a session.
        CapabilityMissingError: its processes cannot reach a store.
    """
    engine = engine_within(session, default)
    if isinstance(engine, EngineOfSessions):
        for store in stores:
            engine.require_reachable(store)
