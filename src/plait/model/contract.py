"""What all clients of a table agree on: its contract, its policy and its options.

Options are in one registry: parsed once, documented from here.
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Final, TypeAlias

from plait.errors import OptionError
from plait.model.bucket import Partition
from plait.model.cached import cached_property
from plait.model.words import CONCURRENCY, FAILED_WRITES, ORDER_KINDS

CODECS = ("snappy", "zstd", "gzip", "lz4", "none")
PARTS = ("concurrency", "lock", "failed_writes")
"""What a caller may set."""
LOCKS = ("file", "process", "none", "zookeeper")

PUBLISH_OPTION: Final = "publish"
"""The property that names the formats in which a table is published."""

APART, SAME, UNKNOWN = "apart", "same", "unknown"
KEYS: Final = (APART, SAME, UNKNOWN)


@dataclass(frozen=True, slots=True)
class Contract:
    """Concurrency mode, lock provider and failed-write policy of a table."""

    concurrency: str = "multi_writer"  # or "single_writer"
    lock: str = "file"
    failed_writes: str = "lazy"  # or "eager"
    dropped: str = ""
    """When the table was dropped, as 17 digits; empty: it was not. No client writes under it."""

    @property
    def single_writer(self) -> bool:
        """Whether a second live writer is refused."""
        return self.concurrency == "single_writer"

    def check(self) -> None:
        """Raise OptionError for an invalid contract."""
        one_of("concurrency", self.concurrency, CONCURRENCY)
        one_of("lock", self.lock.split(":", 1)[0], LOCKS)
        one_of("failed_writes", self.failed_writes, FAILED_WRITES)
        if self.failed_writes == "eager" and self.concurrency == "multi_writer":
            raise OptionError(
                "failed_writes='eager' would let each writer roll back the other writers",
                hint="use failed_writes='lazy', or concurrency='single_writer'",
                key="failed_writes",
                value=self.failed_writes,
            )

    def with_parts(self, parts: Mapping[str, str]) -> Contract:
        """Return it with some parts replaced; raise OptionError for an unknown part."""
        for key in parts:
            one_of("contract", key, PARTS)
        return replace(self, **parts)

    def to_dict(self) -> dict[str, object]:
        """Return it as plain values."""
        plain = asdict(self)
        if not self.dropped:
            del plain["dropped"]
        return plain


@dataclass(frozen=True, slots=True)
class Meeting:
    """Two commits that wrote rows to the same bucket; theirs was first.

    >>> Meeting("upsert", "delete", "same").keys
    'same'
    """

    ours: str
    """Our operation: ``append``, ``insert``, ``upsert``, ``update``, ``delete``, ``merge`` or
    ``transaction``."""
    theirs: str
    """The operation of the other commit."""
    keys: str
    """``apart``: they wrote none of our keys; ``same``: at least one; ``unknown``: it cannot be
    known."""
    computed: bool = False
    """Whether our rows were computed from a read that the caller named."""
    partition: Partition = ()
    """The values of the bucket's partition, as text."""
    bucket: int = 0


Rule: TypeAlias = Callable[[Meeting], str]
"""A conflict policy: ``rebase``, ``retry`` or ``incompatible`` for a meeting. A pure function."""


def one_of(key: str, value: str, allowed: tuple[str, ...]) -> None:
    """Refuse a word that is none of these; raise OptionError."""
    if value not in allowed:
        message = f"{key}={value!r} is unknown"
        raise OptionError(message, hint=f"one of {', '.join(allowed)}", key=key, value=value)


_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SIZE = re.compile(r"(\d+)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE | re.ASCII)
_TIME = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|min|m|h|d)?", re.IGNORECASE | re.ASCII)
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True, slots=True)
class Option:
    """One property of a table: its key, kind, default and meaning.

    The kind is ``size``, ``time``, ``count``, ``percent``, ``choice``, ``choices`` with commas, or
    ``columns`` with commas.
    Read it with the method of ``Options`` for its kind: another one may give a wrong value, and
    raises nothing.
    """

    key: str
    kind: str
    default: str
    doc: str
    minimum: float = 1
    choices: tuple[str, ...] = ()

    def parse(self, value: object) -> float:
        """Return bytes, seconds, a count, the place of a choice, or how many columns.

        Raises:
            OptionError: the value does not fit the kind, or is too small.
        """
        text = str(value).strip()
        if self.kind == "columns":
            return len(_names(text))
        if self.kind == "choices":
            return self._parse_choices(text)
        if self.kind == "choice":
            one_of(self.key, text, self.choices)
            return self.choices.index(text)
        number: float | None = None
        if self.kind == "size" and (match := _SIZE.fullmatch(text)):
            number = int(match[1]) * _UNITS[match[2].lower()]
        elif self.kind == "time" and (match := _TIME.fullmatch(text)):
            number = float(match[1]) * _SECONDS[(match[2] or "s").lower()]
        elif self.kind in ("count", "percent") and text.isascii() and text.isdigit():
            number = int(text)
        if number is None or number < self.minimum:
            examples = {"size": "64MiB", "time": "10s", "count": "20", "percent": "30"}
            message = f"{self.key}={text!r} is not a {self.kind}"
            hint = f"for example {examples[self.kind]}, at least {self.minimum:g}"
            raise OptionError(message, hint=hint, key=self.key, value=text)
        return number

    def _parse_choices(self, text: str) -> float:
        words = _names(text)
        for word in words:
            one_of(self.key, word, self.choices)
        if len(set(words)) < len(words):
            message = f"{self.key}={text!r} names a word twice"
            raise OptionError(message, hint="name each once", key=self.key, value=text)
        return len(words)


@functools.lru_cache(maxsize=1024)
def _parsed(key: str, text: str | None) -> float:
    """Parse an option; None is its default. Cached, because each commit reads several."""
    return OPTIONS[key].parse(OPTIONS[key].default if text is None else text)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for name in map(str.strip, text.split(",")) if name)


OPTIONS: Mapping[str, Option] = {
    option.key: option
    for option in (
        Option(
            "write.bucket.size",
            "size",
            "64MiB",
            "a bucket's buffer is flushed when it exceeds this size",
        ),
        Option(
            "write.buffer.size",
            "size",
            "256MiB",
            "all buffers are flushed when they exceed this size together",
        ),
        Option(
            "file.size.target", "size", "128MiB", "target size of files in tables without a key"
        ),
        Option(
            "file.compression",
            "choice",
            "snappy",
            "codec of data files that are written from now on",
            choices=CODECS,
        ),
        Option(
            "file.compression.level",
            "count",
            "0",
            "level of that codec: 1 to 22 for zstd, 1 to 9 for gzip; 0: the codec's own",
            0,
        ),
        Option(
            "control.message.size",
            "size",
            "256KiB",
            "what a writer of a stream reports goes into a file if it is larger",
        ),
        Option("heartbeat.interval", "time", "10s", "time between two heartbeats", 0.05),
        Option(
            "heartbeat.timeout",
            "time",
            "120s",
            "silence after which a writer may be rolled back",
            0.2,
        ),
        Option("checkpoint.interval", "count", "50", "commits between two checkpoints"),
        Option("recovery.interval", "time", "10min", "how often a commit looks for dead writers"),
        Option("lock.wait", "time", "60s", "longest time to wait for the lock", 0),
        Option("commit.retries", "count", "20", "times that one commit may redo buckets", 0),
        Option("commit.deadline", "time", "5min", "time limit for all attempts of one commit"),
        Option(
            "commit.reserve.after",
            "count",
            "3",
            "lost rounds after which a commit reserves its buckets",
        ),
        Option(
            "compact",
            "choice",
            "off",
            "whether a writer compacts what falls due in the buckets that it has written",
            choices=("off", "inline", "async"),
        ),
        Option(
            "compact.logs",
            "count",
            "1",
            "log files that a bucket may have before they are merged into one",
        ),
        Option(
            "compact.log.percent",
            "percent",
            "30",
            "size of a bucket's log files, in percent of its base file, that merges all of them",
        ),
        Option(
            "compact.hidden.percent",
            "percent",
            "20",
            "share of hidden rows that makes files be written anew",
        ),
        Option(
            "compact.small.files",
            "count",
            "8",
            "small files that a partition without a key may have before they are merged",
            2,
        ),
        Option(
            "archive.keep",
            "count",
            "1000",
            "newest decisions that an archive leaves in their slots",
        ),
        Option(
            "cluster.by",
            "columns",
            "",
            "columns by which `cluster`, `optimize` and full compactions put rows in order; none: "
            "as they come, or by record key",
        ),
        Option(
            "cluster.kind",
            "choice",
            "hilbert",
            "the kind of that order: the first column the most important, or along a curve",
            choices=ORDER_KINDS,
        ),
        Option(
            "cluster.percent",
            "percent",
            "20",
            "share of a bucket's bytes, or of a partition's in a table without a key, that is not "
            "in the order, above which `optimize` clusters it",
            0,
        ),
        Option(
            "cluster.after",
            "time",
            "10min",
            "time after which `optimize` clusters a bucket that a writer of a copy-on-write table "
            "has written anew",
            0,
        ),
        Option(
            "replicas.batch.size",
            "count",
            "1000",
            "rows that the sinks in the table's definition get as one batch",
        ),
        Option("services.task.size", "size", "1GiB", "bytes that one commit of a service rewrites"),
        Option("clean.retain.time", "time", "24h", "versions younger than this stay readable", 0),
        Option(
            "clean.retain.versions",
            "count",
            "10",
            "minimum number of newest versions that stay readable",
        ),
        Option(
            "clean.retain.file_versions",
            "count",
            "0",
            "versions stay readable while no bucket has more than so many versions of its files "
            "since; 0: no such rule",
            0,
        ),
        Option(
            "clean.grace",
            "time",
            "1h",
            "time after a clean in which it can be undone; its files are deleted by a later clean",
            0,
        ),
        Option(
            "metadata.statistics",
            "choice",
            "on",
            "whether the table's metadata tells the bounds of columns in each file that is added",
            choices=("on", "off"),
        ),
        Option(
            "features.upgrade",
            "choice",
            "compatible",
            "which features a decision may be the first to use: those that every client of the "
            "table's format version knows (compatible), none (never), or all (always)",
            choices=("compatible", "never", "always"),
        ),
        Option(
            PUBLISH_OPTION,
            "choices",
            "",
            "formats in which each version is published beside the data files, so that other "
            "engines read the table; none: none",
            choices=("delta", "iceberg"),
        ),
        Option(
            "publish.deadline",
            "time",
            "5s",
            "how long a client publishes after its own commit; what is missing then, the next "
            "client or service publishes",
            0,
        ),
        Option(
            "publish.iceberg.deletes",
            "choice",
            "positions",
            "how hidden rows of a merge-on-read table are published as Iceberg: as files of "
            "positions, which every engine reads, or as deletion vectors, which are smaller and "
            "need version 3 of the format",
            choices=("positions", "vectors"),
        ),
        Option(
            "rows.written",
            "choice",
            "off",
            "whether each row keeps the version that wrote it when it is copied into another file",
            choices=("on", "off"),
        ),
    )
}


@dataclass(frozen=True)  # no slots: the values by key are put together once
class Options:
    """Parsed options of one table; unknown keys are refused."""

    values: tuple[tuple[str, str], ...] = ()

    @cached_property
    def _given(self) -> dict[str, str]:
        return dict(self.values)

    @classmethod
    def of(cls, values: Mapping[str, object]) -> Options:
        """Check every key and value; raise OptionError naming the nearest valid key.

        >>> Options.of({"write.bucket.size": "1MiB"}).size("write.bucket.size")
        1048576
        """
        for key, value in values.items():
            if key not in OPTIONS:
                near = difflib.get_close_matches(key, OPTIONS, n=1)
                message = f"unknown option {key!r}"
                hint = f"did you mean {near[0]!r}?" if near else f"one of {', '.join(OPTIONS)}"
                raise OptionError(message, hint=hint, key=key, value=value, nearest=near)
            OPTIONS[key].parse(value)
        return cls(tuple(sorted((key, str(value)) for key, value in values.items())))

    def size(self, key: str) -> int:
        """Return a size in bytes."""
        return int(_parsed(key, self._given.get(key)))

    def count(self, key: str) -> int:
        """Return a count, or a percentage."""
        return int(_parsed(key, self._given.get(key)))

    def choice(self, key: str) -> str:
        """Return the word of a choice."""
        return OPTIONS[key].choices[int(_parsed(key, self._given.get(key)))]

    def names(self, key: str) -> tuple[str, ...]:
        """Return the names of columns, or the words of choices."""
        return _names(self._given.get(key, OPTIONS[key].default))

    def seconds(self, key: str) -> float:
        """Return a time in seconds."""
        return _parsed(key, self._given.get(key))

    def to_dict(self) -> dict[str, str]:
        """Return the values that were set."""
        return dict(self.values)

    def merged(self, values: Mapping[str, object]) -> Options:
        """Return these options with some replaced."""
        return Options.of({**self.to_dict(), **values})
