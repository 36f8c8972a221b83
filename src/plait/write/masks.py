"""Write the deletion vectors of one round of staging."""

from __future__ import annotations

from plait.files.deletion import MaskWriter
from plait.model.bucket import Partition
from plait.write.output import Output
from plait.write.result import Staged


class Masks:
    """Writes masks bucket by bucket, so that few of them are held."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._writer: MaskWriter | None = None
        self._owners: dict[str, Staged] = {}

    def add(self, partition: Partition, staged: Staged) -> None:
        """Write the masks of a bucket; their records come with ``close``."""
        for path, positions in staged.hidden.items():
            if self._writer is None:
                self._writer = MaskWriter(self._output.store, self._output.mask_name(partition))
            self._writer.add(path, positions)
            self._owners[path] = staged
        staged.hidden = {}

    def close(self) -> None:
        """Give each bucket the records of its masks."""
        if self._writer is None:
            return
        records = self._writer.close()
        self._output.written.update(self._writer.paths)
        for at, path in enumerate(records["path"].to_pylist()):
            self._owners[path].masked.append(records.slice(at, 1))
