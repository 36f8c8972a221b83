"""Reports that are too large for a message: what they list is in a file of their instant.

Nobody needs the file once the instant is decided: the decision names it as garbage, and without one
recovery deletes it as any file of the instant. One that is missing or damaged is an error, so the
turn is given up and its rows are read again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import xxhash

from plait.errors import CorruptMetadataError
from plait.files.data_file import STATUS, data_path, parse_path
from plait.model.bucket import UNKEYED, Partition
from plait.model.instant import Instant
from plait.storage.port import Store
from plait.stream.messages import BYTES_MAX, FILE_BYTES_MAX, Report, decode, encode
from plait.write.group_commit import RUN_HOME


@dataclass(frozen=True, slots=True)
class StatusFile:
    """Where a writer puts the report of a turn that is too large."""

    store: Store
    instant: Instant
    label: str
    """Label in the names of the writer's files in this turn."""
    announce: Callable[[Iterable[Partition]], None]
    size_max: int
    """Maximum size of a message in bytes."""

    def offload(self, report: Report) -> Report:
        """Return the report as it is sent; write a file only if it is too large.

        Raises:
            StorageError: the file could not be written.
            StreamError: it would be larger than what anybody reads.
        """
        size_max = min(self.size_max, BYTES_MAX // 2)
        if len(report.status) * 4 // 3 + sum(map(len, report.runs)) <= size_max:
            return report
        body = encode(report, bytes_max=FILE_BYTES_MAX)
        path = data_path(RUN_HOME, UNKEYED, self.instant, self.label, STATUS)
        # Announced like every file: if the turn is never decided, recovery looks here and deletes
        # it.
        self.announce([RUN_HOME])
        self.store.put(path, body)
        return replace(report, runs=(), status=b"", file=path, file_hash=_hash(body))


def load_report(store: Store, report: Report, instant: Instant) -> Report:
    """Return a report with what it lists; it is read from its file if it has one.

    Raises:
        CorruptMetadataError: the file is missing, damaged, another report's, or of another instant.
        StorageError: it cannot be read now.
    """
    if not report.file:
        return report
    name = parse_path(report.file)
    if name is None or (name.kind, name.instant) != (STATUS, instant):
        message = f"what {report.writer[:80]!r} names is not its report of turn {report.number}"
        raise CorruptMetadataError(message, path=report.file, expected=str(instant))
    body = store.find(report.file, size_max=FILE_BYTES_MAX)
    if body is None or _hash(body) != report.file_hash:
        state = "missing" if body is None else "damaged"
        message = f"what {report.writer!r} reported of turn {report.number} is {state}"
        raise CorruptMetadataError(message, path=report.file, expected=report.file_hash)
    found = decode(body, bytes_max=FILE_BYTES_MAX)
    about = replace(report, file="", file_hash="")
    # The file must be the same report as the message. Otherwise rows of one turn could be committed
    # with the offsets of another.
    if not isinstance(found, Report) or replace(found, runs=(), status=b"") != about:
        message = f"the file is not what {report.writer!r} reported of turn {report.number}"
        raise CorruptMetadataError(message, path=report.file)
    return replace(found, file=report.file, file_hash=report.file_hash)


def _hash(body: bytes) -> str:
    return xxhash.xxh3_128_hexdigest(body)
