"""Take rows out of live files: mask them (MOR), or write the files anew without them (COW)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from plait.arrow.existing import Existing, Hidden, union
from plait.arrow.output import Output
from plait.arrow.result import Staged
from plait.files.deletion import MaskWriter, load_mask
from plait.files.live import LiveFile
from plait.model.bucket import BucketId, Partition
from plait.model.plan import MOR


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
        """Return the mask records of each bucket."""
        if self._writer is None:
            return
        records = self._writer.close()
        self._output.written.update(self._writer.paths)
        for at, path in enumerate(records["path"].to_pylist()):
            self._owners[path].masked.append(records.slice(at, 1))


def remove_rows(
    bucket: BucketId, files: Sequence[LiveFile], gone: Hidden, existing: Existing, output: Output
) -> Staged:
    """Stage a bucket without some of its live rows; files that lose all of theirs go."""
    staged = Staged(deleted=sum(len(positions) for positions in gone.values()))
    if output.spec.table_type == MOR:
        hide(staged, files, gone, existing)
        return staged
    names = output.spec.schema.names
    for file in files:
        lost = gone.get(file.path)
        if lost is None or not len(lost):
            continue
        staged.removed.append(file)
        if len(lost) < file.live_rows:
            blocks = (block.rows for block in existing.blocks(file, names, hidden=lost))
            record = output.write(bucket, file.kind, blocks, sorted_by_key=file.sorted_by_key)
            staged.added.extend([] if record is None else [record])
    return staged


def remove_files(files: Iterable[LiveFile]) -> Staged:
    """Stage a bucket without any of its files."""
    removed = list(files)
    return Staged(removed=removed, deleted=sum(file.live_rows for file in removed))


def hide(staged: Staged, files: Sequence[LiveFile], gone: Hidden, existing: Existing) -> None:
    """Stage the masks of live files: what is hidden now and what goes; empty files go whole."""
    for file in files:
        lost = gone.get(file.path)
        if lost is None or not len(lost):
            continue
        if len(lost) == file.live_rows:
            staged.removed.append(file)
            continue
        positions = union(load_mask(existing.store, file), lost)
        if positions is not None:
            staged.hidden[file.path] = positions
