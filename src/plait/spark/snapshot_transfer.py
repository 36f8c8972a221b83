"""The live files that a task needs, on their way to it: Arrow's own format, compressed."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa

from plait.model.plan import LIVE, Snapshot


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
