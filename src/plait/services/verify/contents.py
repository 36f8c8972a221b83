"""What is inside files: rows, columns, deletion vectors, keys, indexes of keys, and row maps."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import groupby

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from plait.errors import CorruptMetadataError, SchemaMismatchError, StorageError
from plait.files.data_file import LiveFile, live_files, unmasked
from plait.files.deletion import VECTOR_FRAME, load_mask
from plait.files.digest import Digester
from plait.files.entry_file import read_entry
from plait.files.hash import bucket_of, key_hashes, load_sidecar
from plait.files.key_index import entries_of
from plait.files.partition_values import is_computable, values_of
from plait.files.reader import OpenFile, Schemas
from plait.model.decision import Decision
from plait.model.order import KEY_ORDER
from plait.model.plan import Snapshot, TableSpec
from plait.model.value import texts_of, to_text
from plait.read.slices import SliceReader
from plait.services.verify.report import INDEXED, Findings
from plait.storage.port import Store

_HASHES_MAX = 8 << 20
"""Keys whose hashes are held at once: 64 MiB, and as much again to sort them."""
_SAMPLE = 10_000
"""Number of repeated hashes that are compared key by key; with more there is no doubt."""

Hashes = npt.NDArray[np.uint64]
_Damage = (CorruptMetadataError, SchemaMismatchError, StorageError)


def check_files(store: Store, snapshot: Snapshot, findings: Findings) -> None:
    """Read every live file whole, batch by batch, and its deletion vector (INV-04)."""
    schemas = Schemas(snapshot.spec.schema, snapshot.schemas)
    for file in _live(snapshot.files, findings):
        try:
            with OpenFile(store, file, schemas) as source:
                _check_file(source, file, snapshot.spec, findings)
            if load_mask(store, file) is not None:
                findings.count("deletion vectors")
        except _Damage as error:
            findings.damage("INV-04", file.path, error)


def check_older(store: Store, files: pa.Table, snapshot: Snapshot, findings: Findings) -> None:
    """Open the data files that only older versions show, and compare their footers (INV-05).

    Args:
        store: the table's.
        files: with the columns of ADDED.
        snapshot: of the newest version.
        findings: takes what is wrong.
    """
    schemas = Schemas(snapshot.spec.schema, snapshot.schemas)
    for file in _live(unmasked(files, version=snapshot.version), findings):
        try:
            OpenFile(store, file, schemas).close()
        except _Damage as error:
            findings.damage("INV-05", file.path, error)


class SideFiles:
    """The files beside the data that decisions name: vectors, key sidecars and row maps.

    Each proves itself to the decision that names it. Nobody may need one any more: so one that is
    missing is reported elsewhere, if at all, and one that no version shows is passed over.
    """

    def __init__(self) -> None:
        self._entries: dict[tuple[str, int], int] = {}
        self._maps: dict[tuple[str, int], int] = {}
        self._sidecars: dict[str, int] = {}

    def take(self, decision: Decision) -> None:
        """Note what a decision names."""
        changes = decision.changes
        for rows, prefix, frame, noted in (
            (changes.masked, "dv", VECTOR_FRAME, self._entries),
            (changes.moved, "map", 0, self._maps),
        ):
            for row in rows.filter(pc.is_valid(rows[f"{prefix}_path"])).to_pylist():
                path, offset = row[f"{prefix}_path"], row[f"{prefix}_offset"]
                noted[path, offset or 0] = (row[f"{prefix}_bytes"] or 0) + frame
        for rows in (changes.touched, changes.lookups):
            for row in rows.filter(pc.is_valid(rows["key_path"])).to_pylist():
                self._sidecars[row["key_path"]] = row["key_count"]

    @property
    def paths(self) -> pa.Array:
        """All of them."""
        names = {path for path, _ in (*self._entries, *self._maps)} | self._sidecars.keys()
        return pa.array(sorted(names), pa.string())

    def check(
        self, store: Store, present: Collection[str], shown: Collection[str], findings: Findings
    ) -> None:
        """Read those that versions or writers may need.

        Args:
            store: the table's.
            present: those that are there.
            shown: the vectors and sidecars that a version needs.
            findings: takes what is wrong.
        """
        entries = {place: size for place, size in self._entries.items() if place[0] in shown}
        for (path, offset), size in (entries | self._maps).items():
            if path in present:
                self._check(
                    "INV-05", path, findings, partial(read_entry, store, path, offset, size)
                )
        for path, count in self._sidecars.items():
            if path in present and path in shown:
                self._check(
                    "INV-07", path, findings, partial(load_sidecar, store, path, count=count)
                )

    @staticmethod
    def _check(invariant: str, path: str, findings: Findings, read: Callable[[], object]) -> None:
        if findings.damaged(path):  # found with the rows that it hides
            return
        findings.count("side files")
        try:
            read()
        except _Damage as error:
            findings.damage(invariant, path, error)


def _check_file(source: OpenFile, file: LiveFile, spec: TableSpec, findings: Findings) -> None:
    """Read every row, and compare the key index with the keys (INV-11)."""
    keys, indexed, at = Digester(), Digester(), 0
    strays: set[str] = set()
    for group in range(source.group_count):
        for batch in source.batches(group, spec.schema.names):
            findings.count("rows", batch.num_rows)
            strays.update(_strays(batch, file, spec))
            if spec.keyed and file.order != KEY_ORDER:
                keys.add(_numbers(entries_of(key_hashes(batch, spec.key), at)))
            at += batch.num_rows
    for text in sorted(strays):
        message = f"it has rows of another partition by {text}"
        findings.problem("INV-08", file.path, message)
    try:
        for entries in source.indexed_keys():
            indexed.add(_numbers(entries))
    except CorruptMetadataError as error:
        findings.damage(INDEXED, file.path, error)
        return
    if indexed.digest.rows:
        findings.count("key indexes")
        if indexed.digest != keys.digest:
            message = "its key index leads to other rows than those of its keys"
            findings.problem(INDEXED, file.path, message)


def _strays(rows: pa.RecordBatch, file: LiveFile, spec: TableSpec) -> Iterator[str]:
    """Yield the transforms that put a row of a file into another partition (INV-08).

    A writer with another version of a function of one's own leaves such rows.
    """
    for field, text in zip(spec.fields, file.partition, strict=True):
        if not field.is_column and is_computable(field):
            values = values_of(field, rows).unique()
            if any(each != text for each in texts_of(values)):
                yield field.text


def _numbers(entries: Hashes) -> pa.RecordBatch:
    return pa.record_batch({"entry": entries.view(np.int64)})


def check_keys(store: Store, snapshot: Snapshot, findings: Findings) -> None:
    """Look for keys that are live twice, bucket by bucket (INV-08).

    Where keys are unique in the table, buckets with one number are looked at together.

    Hashes of the keys are sorted, so many at a time as fit into memory; where two are the same,
    the keys themselves are compared. A key in the wrong bucket is found too: nobody would look
    for it there.
    """
    unique_in_table = snapshot.spec.unique_in_table
    places = ("bucket", "partition") if unique_in_table else ("partition", "bucket")
    by = [(name, "ascending") for name in (*places, "version", "path")]
    files = _live(snapshot.files.sort_by(by), findings)
    reader = SliceReader.of(store, snapshot)
    for _, group in groupby(
        files, key=lambda f: (() if unique_in_table else f.partition, f.bucket)
    ):
        _Bucket(reader, snapshot, list(group), findings).check()


def _live(files: pa.Table, findings: Findings) -> Iterator[LiveFile]:
    """Return live files one by one, without those that are known to be missing or damaged."""
    for at in range(files.num_rows):
        try:
            file = next(live_files(files.slice(at, 1)))
        except CorruptMetadataError as error:
            findings.damage("INV-04", files["path"][at].as_py(), error)
            continue
        vector_damaged = file.dv_path is not None and findings.damaged(file.dv_path)
        if not vector_damaged and not findings.damaged(file.path):
            yield file


@dataclass(slots=True)
class _Bucket:
    """The live rows of one bucket."""

    reader: SliceReader
    snapshot: Snapshot
    files: list[LiveFile]
    findings: Findings

    def check(self) -> None:
        self._check_place()
        rows = sum(file.live_rows for file in self.files)
        self.findings.count("keys", rows)
        passes = 1 + rows // _HASHES_MAX
        for number in range(passes):
            repeated = self._repeated(number, passes)
            if len(repeated):
                self._compare(repeated[:_SAMPLE])

    def _check_place(self) -> None:
        """Drop files that cannot be read, and report those with rows of another bucket."""
        spec = self.snapshot.spec.layout.buckets
        sound = []
        for file in self.files:
            try:
                numbers = [
                    bucket_of(key_hashes(rows, spec.hashed), spec.count)
                    for _, rows in self._keys(file)
                ]
            except _Damage as error:
                self.findings.damage("INV-04", file.path, error)
                continue
            sound.append(file)
            if any((each != file.bucket).any() for each in numbers):
                message = f"it has keys of other buckets than {file.bucket}"
                self.findings.problem("INV-08", file.path, message)
        self.files = sound

    def _keys(self, file: LiveFile) -> Iterator[tuple[Hashes, pa.RecordBatch]]:
        key = self.snapshot.spec.key
        for rows in self.reader.rows(file, columns=key):
            yield key_hashes(rows, key), rows

    def _repeated(self, number: int, passes: int) -> Hashes:
        """Return the hashes that more than one live row has, of those of one pass."""
        parts: list[Hashes] = [np.zeros(0, np.uint64)]
        for file in self.files:
            for hashes, _ in self._keys(file):
                parts.append(hashes[hashes % np.uint64(passes) == number])
        every = np.sort(np.concatenate(parts))
        return np.unique(every[1:][every[1:] == every[:-1]])

    def _compare(self, repeated: Hashes) -> None:
        """Tell equal keys from equal hashes, and name the file that repeats a key."""
        key = list(self.snapshot.spec.key)
        parts: list[pa.Table] = []
        for at, file in enumerate(self.files):
            for hashes, rows in self._keys(file):
                chosen = rows.filter(pa.array(np.isin(hashes, repeated)))
                table = pa.table(chosen.columns, names=[f"k{i}" for i in range(len(key))])
                parts.append(table.append_column("at", pa.repeat(at, chosen.num_rows)))
        rows = pa.concat_tables(parts)
        names = rows.column_names[:-1]
        groups = rows.group_by(names).aggregate([("at", "count"), ("at", "min"), ("at", "max")])
        twice = groups.filter(pc.greater(groups["at_count"], 1))
        for at in pc.unique(twice["at_max"]).to_pylist():
            row = twice.filter(pc.equal(twice["at_max"], at)).slice(0, 1)
            values = (to_text(row[name][0], row[name].type) for name in names)
            shown = ", ".join(f"{n} = {v}" for n, v in zip(key, values, strict=True))
            first = self.files[row["at_min"][0].as_py()].path
            message = f"the key {shown} is live here and in {first}"
            self.findings.problem("INV-08", self.files[at].path, message)
