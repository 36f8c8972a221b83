"""What the driver sends to tasks, and what they send home.

To a task goes a snapshot, its files packed in Arrow's own format. Home comes one row, with what the
task staged or with the error that stopped it.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from dataclasses import dataclass, field, replace

import pyarrow as pa

from plait import errors
from plait.errors import TableError
from plait.model.changes import WriteStatus
from plait.model.plan import LIVE, Snapshot
from plait.model.sink_ledger import TaskLedger

COLUMNS = (
    "task int, attempt int, rows bigint, digest bigint, label string, status binary, "
    "ledger string, error string"
)
"""The columns of a report as Spark names them."""

_SCHEMA = pa.schema(
    [
        pa.field("task", pa.int32()),
        pa.field("attempt", pa.int32()),
        pa.field("rows", pa.int64()),
        pa.field("digest", pa.int64()),
        pa.field("label", pa.string()),
        pa.field("status", pa.binary()),
        pa.field("ledger", pa.string()),
        pa.field("error", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class TaskReport:
    """One task's work, as the attempt that succeeded tells it."""

    task: int
    attempt: int
    """Above 0: others tried before, and may have left files that no report names."""
    rows: int = 0
    """Rows that came in."""
    digest: int = 0
    """Sum of the hashes of their keys: tells whether another evaluation gave the same keys."""
    label: str = ""
    """Names the files that the attempt wrote for other tasks."""
    status: WriteStatus = field(default_factory=WriteStatus)
    ledger: TaskLedger | None = None
    """What it sent to the sinks of a dual write."""
    error: TableError | None = None

    def to_batch(self) -> pa.RecordBatch:
        """Write it as a row for Spark."""
        body = None if self.error is not None else self.status.to_bytes()
        text = None if self.error is None else error_text(self.error)
        sent = None if self.ledger is None else json.dumps(self.ledger.to_dict())
        values = [self.task, self.attempt, self.rows, self.digest, self.label, body, sent, text]
        columns = [pa.array([v], f.type) for v, f in zip(values, _SCHEMA, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)

    @classmethod
    def from_row(
        cls, row: tuple[int, int, int, int, str, bytes | None, str | None, str | None]
    ) -> TaskReport:
        """Read a row that Spark collected."""
        task, attempt, rows, digest, label, body, sent, text = row
        error = None if text is None else parse_error(text)
        status = WriteStatus() if body is None else WriteStatus.from_bytes(bytes(body))
        ledger = None if sent is None else TaskLedger.from_dict(json.loads(sent))
        return cls(task, attempt, rows, digest, label, status, ledger, error)


def error_text(error: TableError) -> str:
    """Write an error as JSON; its facts become plain values."""
    return json.dumps(error.to_dict(), separators=(",", ":"))


def parse_error(text: str) -> TableError:
    """Read an error that ``error_text`` wrote; a class that is not ours becomes the base class."""
    value = json.loads(text)
    kind = getattr(errors, str(value["type"]), TableError)
    if not (isinstance(kind, type) and issubclass(kind, TableError)):
        kind = TableError
    return kind(str(value["message"]), hint=str(value["hint"]), **value["facts"])


def marked(error: TableError, secret: str) -> str:
    """Write an error into a message that Spark will carry home inside of a stack trace.

    Args:
        error: the error.
        secret: of this job alone; rows and functions of users do not know it, and forge nothing.
    """
    body = base64.b64encode(error_text(error).encode()).decode()
    return f"{error} [plait-error:{secret}:{body}]"


def find_error(text: str, secret: str) -> TableError | None:
    """Find an error of ours, marked with this secret, in the text of a Spark exception."""
    found = re.search(rf"\[plait-error:{re.escape(secret)}:([A-Za-z0-9+/=]+)\]", text, re.ASCII)
    if found is None:
        return None
    try:
        return parse_error(base64.b64decode(found[1], validate=True).decode())
    except (binascii.Error, ValueError, KeyError, TypeError):
        return None


@dataclass(frozen=True, slots=True)
class PackedSnapshot:
    """A snapshot whose files are bytes: a frozen value that is cheap to send to every task."""

    head: Snapshot
    """Without files."""
    files: bytes

    @classmethod
    def pack(cls, snapshot: Snapshot) -> PackedSnapshot:
        """Pack a snapshot."""
        files = snapshot.files.select(LIVE.names).cast(LIVE)
        return cls(replace(snapshot, files=LIVE.empty_table()), packed(files))

    def unpack(self) -> Snapshot:
        """Return the snapshot with all its files."""
        return replace(self.head, files=unpacked(self.files))


def packed(files: pa.Table) -> bytes:
    """Write rows about files, and of a slice only those that it shows."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(sink, files.schema, options=options) as stream:
        stream.write_table(files)
    body: bytes = sink.getvalue().to_pybytes()
    return body


def unpacked(body: bytes) -> pa.Table:
    """Read what ``packed`` wrote."""
    # A few rows: to hand them to other threads takes longer than to unpack them.
    with pa.ipc.open_stream(body, options=pa.ipc.IpcReadOptions(use_threads=False)) as stream:
        return stream.read_all()
