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
        sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.ipc.new_stream(sink, LIVE, options=options) as stream:
            stream.write_table(snapshot.files.select(LIVE.names).cast(LIVE))
        return cls(replace(snapshot, files=LIVE.empty_table()), sink.getvalue().to_pybytes())

    def unpack(self) -> Snapshot:
        """Give the snapshot with all its files."""
        with pa.ipc.open_stream(self.files) as stream:
            return replace(self.head, files=stream.read_all())
