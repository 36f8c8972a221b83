"""What sinks hold: the ledger of a commit, the record of an attempt, the position of a sink."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from plait.model.changes import Digest
from plait.model.instant import Instant

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_HASH = re.compile(r"[0-9a-f]{16}", re.ASCII)

T = TypeVar("T")


def is_sink_name(text: str) -> bool:
    """Tell whether a sink may have this name.

    >>> is_sink_name("eu-west"), is_sink_name("../x")
    (True, False)
    """
    return _NAME.fullmatch(text) is not None


def addresses_of(value: object) -> dict[str, str]:
    """Read the sinks of a definition; raise TypeError or ValueError for nonsense."""
    found = {str(name): _typed(address, str) for name, address in _typed(value, dict).items()}
    if not all(is_sink_name(name) and address for name, address in found.items()):
        raise ValueError(value)
    return found


@dataclass(frozen=True, slots=True)
class TaskLedger:
    """What one task sent to each sink, and each sink acknowledged."""

    task: str
    batches: int
    digest: Digest
    """Digest of the rows that were sent, and of the keys that were removed."""
    last_key: tuple[str | None, ...]
    """The values of the last key, as canonical texts."""

    def to_dict(self) -> dict[str, object]:
        """Return it as plain values."""
        return {
            "task": self.task,
            "batches": self.batches,
            "digest": [self.digest.rows, f"{self.digest.hash:016x}"],
            "last_key": list(self.last_key),
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, object]) -> TaskLedger:
        """Read what ``to_dict`` wrote; raise KeyError, TypeError or ValueError for nonsense."""
        rows, total = _list(value["digest"])
        if not _HASH.fullmatch(_typed(total, str)):
            raise ValueError(value)
        digest = Digest(_count(rows), int(_typed(total, str), 16))
        last = tuple(None if t is None else _typed(t, str) for t in _list(value["last_key"]))
        return cls(_typed(value["task"], str), _count(value["batches"]), digest, last)


@dataclass(frozen=True, slots=True)
class SinkLedger:
    """Which sinks hold which tasks' batches of a commit; each sink holds all of them."""

    sinks: tuple[str, ...]
    tasks: tuple[TaskLedger, ...]

    def to_dict(self) -> dict[str, object]:
        """Return it as plain values."""
        return {"sinks": list(self.sinks), "tasks": [task.to_dict() for task in self.tasks]}

    @classmethod
    def together(cls, ledgers: Iterable[SinkLedger | None]) -> SinkLedger | None:
        """Return what the operations of one commit sent, all of them to the same sinks."""
        found = [ledger for ledger in ledgers if ledger is not None]
        tasks = tuple(task for ledger in found for task in ledger.tasks)
        return cls(found[0].sinks, tasks) if found else None

    @classmethod
    def from_dict(cls, value: Mapping[str, object]) -> SinkLedger:
        """Read what ``to_dict`` wrote; raise KeyError, TypeError or ValueError for nonsense."""
        tasks = (TaskLedger.from_dict(_typed(each, dict)) for each in _list(value["tasks"]))
        return cls(_sinks(value["sinks"]), tuple(tasks))


@dataclass(frozen=True, slots=True)
class Attempt:
    """A writer that sends rows to sinks: written before the first batch leaves."""

    instant: Instant
    sinks: tuple[str, ...]
    """Empty: its record does not prove itself, and it may be at any sink."""
    began_ms: int
    host: str
    pid: int
    task: str = ""
    """Which attempt of which task of a distributed writer this is; empty: the writer itself."""
    under_way: tuple[str, ...] = ()
    """Sinks that had not answered when it failed: they may yet take what it sent."""
    process: str = ""
    """Names the process that sent it (``txn/liveness.py``), where something is under way."""

    def concerns(self, sink: str) -> bool:
        """Tell whether it may have sent rows to a sink."""
        return sink in self.sinks or not self.sinks

    def to_dict(self) -> dict[str, object]:
        """Return it as plain values."""
        more: dict[str, object] = {"task": self.task} if self.task else {}
        if self.under_way:
            more |= {"under_way": list(self.under_way), "process": self.process}
        return more | {
            "instant": str(self.instant),
            "sinks": list(self.sinks),
            "began_ms": self.began_ms,
            "host": self.host,
            "pid": self.pid,
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, object]) -> Attempt:
        """Read what ``to_dict`` wrote; raise KeyError, TypeError or ValueError for nonsense."""
        return cls(
            Instant.parse(_typed(value["instant"], str)),
            _sinks(value["sinks"]),
            _count(value["began_ms"]),
            _typed(value["host"], str),
            _count(value["pid"]),
            _typed(value.get("task", ""), str),
            _sinks(value.get("under_way", [])),
            _typed(value.get("process", ""), str),
        )


@dataclass(frozen=True, slots=True)
class SinkPosition:
    """The version at which a sink was compared with the table, row by row, and equal."""

    sink: str
    version: int
    extra: int = 0
    """Rows that only the sink has, and that were kept."""
    overlapped: tuple[Instant, ...] = ()
    """Instants that wrote to the sink while it was compared."""
    lost: bool = False
    """Whether nothing is known of it: then the sink may lack anything, or have too much."""
    decision: str = ""
    """The checksum of the decision of this version; empty: an older Plait wrote it."""

    def to_dict(self) -> dict[str, object]:
        """Return it as plain values; what an older Plait cannot read is lost to it as well."""
        if self.lost:
            return {"sink": self.sink, "lost": True}
        more = {"decision": self.decision} if self.decision else {}
        return more | {
            "sink": self.sink,
            "version": self.version,
            "extra": self.extra,
            "overlapped": [str(instant) for instant in self.overlapped],
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, object]) -> SinkPosition:
        """Read what ``to_dict`` wrote; raise KeyError, TypeError or ValueError for nonsense."""
        (sink,) = _sinks([value["sink"]])
        if value.get("lost") is True:
            return cls(sink, 0, lost=True)
        overlapped = (Instant.parse(_typed(each, str)) for each in _list(value["overlapped"]))
        return cls(
            sink,
            _count(value["version"]),
            _count(value["extra"]),
            tuple(overlapped),
            decision=_typed(value.get("decision", ""), str),
        )


def _sinks(value: object) -> tuple[str, ...]:
    names = tuple(_typed(each, str) for each in _list(value))
    if not all(map(is_sink_name, names)) or len(set(names)) < len(names):
        raise ValueError(value)
    return names


def _count(value: object) -> int:
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise ValueError(value)
    return value


def _list(value: object) -> list[object]:
    return _typed(value, list)


def _typed(value: object, kind: type[T]) -> T:
    if not isinstance(value, kind):
        raise TypeError(value)
    return value
