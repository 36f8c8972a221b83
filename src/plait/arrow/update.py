"""Stage an update on one bucket: the rows that match get new values, in their place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from plait.arrow.clauses import BoundClauses
from plait.arrow.existing import Existing, Hidden, hide
from plait.arrow.memory import combined, taken
from plait.arrow.merge import DuplicateRule, Merge
from plait.arrow.output import KeyDigest, Output, Staged, touched_row
from plait.arrow.runs import kept_rows
from plait.expr.evaluate import Sides
from plait.expr.tree import TARGET
from plait.files.data_file import LiveFile
from plait.files.roaring import Positions
from plait.model.bucket import BucketId
from plait.model.changes import BASE, KEYS_ALL, LOG
from plait.model.order import KEY_ORDER, NO_ORDER, recorded_order
from plait.model.plan import MOR
from plait.model.schema import unwritten
from plait.read.join import SortedBatch, Source
from plait.read.key_sort import sorted_by_key


@dataclass(frozen=True, slots=True)
class ChangeStage:
    """Updates rows: writes their files anew (COW), or masks them and adds a log (MOR)."""

    output: Output
    existing: Existing
    rules: BoundClauses
    """One clause without a condition: which rows match is known."""
    budget: int

    def stage(self, bucket: BucketId, files: Sequence[LiveFile], matching: Hidden) -> Staged:
        """Do the update on one bucket; ``matching`` has the rows that match, by file."""
        staged = Staged()
        chosen = [(file, matching[file.path]) for file in files if len(matching.get(file.path, ()))]
        if not chosen:
            return staged
        keyed = self.output.spec.keyed
        digest = KeyDigest(self.output)
        if self.output.spec.layout.table_type == MOR:
            self._mask(bucket, chosen, digest, staged)
        else:
            for file, at in chosen:
                blocks = self._rewritten(file, at, digest)
                record = self.output.write(bucket, file.kind, blocks, order=self._order(file))
                staged.added += [] if record is None else [record]
                staged.removed.append(file)
        staged.updated = sum(len(at) for _, at in chosen)
        whole = touched_row(bucket, KEYS_ALL, 0)
        staged.touched = digest.row(bucket) if keyed else whole
        return staged

    def _order(self, file: LiveFile) -> int:
        """Return the order of a file's rows afterwards: theirs, unless its columns change."""
        if file.order <= KEY_ORDER:
            return file.order
        order = recorded_order(self.output.plan.options)
        if order is None or order.id != file.order:
            return NO_ORDER
        return NO_ORDER if self.rules.set_columns.intersection(order.columns) else file.order

    def _rewritten(self, file: LiveFile, at: Positions, digest: KeyDigest) -> Iterator[pa.Table]:
        """Return every row of a file, those that match with their new values."""
        spec = self.output.spec
        for block in self.existing.blocks(file, spec.copied):
            here = _inside(block, at)
            if not len(here):
                yield block.rows
                continue
            changed = self._changed(block.rows.take(pa.array(here)), digest)
            changed = unwritten(changed) if spec.keeps_row_version else changed
            order = np.arange(block.rows.num_rows)
            order[here] = block.rows.num_rows + np.arange(len(here))
            yield taken(combined(pa.concat_tables([block.rows, changed])), order)

    def _mask(
        self,
        bucket: BucketId,
        chosen: Sequence[tuple[LiveFile, Positions]],
        digest: KeyDigest,
        staged: Staged,
    ) -> None:
        """Write the new rows into one file, and hide the old ones."""
        spec = self.output.spec
        parts = [self._matching(file, at, digest) for file, at in chosen]
        rows: Iterator[pa.Table]
        if spec.keyed:
            merge = Merge(spec.key, None, DuplicateRule.REPLACE)
            rounds = merge.rounds([Source(part) for part in parts], self.budget)
            rows = (rows for each in rounds for rows in kept_rows(each, self.output.limits.slice))
        else:
            rows = (block.rows for part in parts for block in part)
        kind = LOG if spec.keyed else BASE
        record = self.output.write(bucket, kind, rows, order=KEY_ORDER if spec.keyed else NO_ORDER)
        staged.added += [] if record is None else [record]
        files = [file for file, _ in chosen]
        hide(staged, files, {file.path: at for file, at in chosen}, self.existing)

    def _matching(self, file: LiveFile, at: Positions, digest: KeyDigest) -> Iterator[SortedBatch]:
        """Return the rows of a file that match, with their new values, in key order."""

        def blocks() -> Iterator[SortedBatch]:
            names = self.output.spec.schema.names
            for part in self.existing.reader.at(file, at, columns=names):
                rows = pa.Table.from_batches([part.rows])
                yield SortedBatch(self._changed(rows, digest), part.positions)

        if file.order == KEY_ORDER or not self.output.spec.keyed:
            return blocks()
        return sorted_by_key(blocks(), self.output.spec.key, self.existing.sort_bytes)

    def _changed(self, rows: pa.Table, digest: KeyDigest) -> pa.Table:
        changed = self.rules.choose(Sides.of(**{TARGET: rows})).rows
        if self.output.spec.keyed:
            digest.add(rows.select(list(self.output.spec.key)))
        return changed


def _inside(block: SortedBatch, at: Positions) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return where in a block the rows at some positions of the file stand."""
    if block.positions is None:
        return np.zeros(0, dtype=np.int64)
    return np.flatnonzero(np.isin(block.positions, at, assume_unique=True))
