"""A source that is a Hudi table at an instant, of either type."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import xxhash

from plait.errors import MissingDependencyError, TableError
from plait.model.consent import AllowedAddress, Consent, absolute_path
from plait.repush.imports import (
    Premises,
    changed_source,
    place_of,
    reading,
    require_links_within,
    unreadable,
)
from plait.repush.parts import RowPart, SourceOrigin, spans

if TYPE_CHECKING:
    from hudi import HudiFileGroupReader, HudiFileSlice, HudiTable

_KEYS, _PLACES = "hoodie.table.recordkey.fields", "hoodie.table.partition.fields"
_PLAIN_KEYS = ("SIMPLE", "COMPLEX", "NON_PARTITION", "")
"""Key generators whose partitions are columns as they are."""


@dataclass(frozen=True, slots=True)
class HudiSource:
    """The newest files of each file group, as they were at an instant."""

    address: str
    schema: pa.Schema
    reader: HudiFileGroupReader
    slices: tuple[HudiFileSlice, ...]
    counts: tuple[int, ...]
    version: int
    """The instant, as a number of digits."""
    digest: str
    """Hash of the names of its files.

    A write that was under way at the instant may be complete the next time.
    """
    origin: SourceOrigin

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return sum(self.counts)

    def parts(self, rows: int) -> list[RowPart]:
        """Cut its file groups, in the order of their paths."""
        return [
            RowPart(sum(self.counts[low:high]), functools.partial(self._read, low, high))
            for low, high in spans(self.counts, rows)
        ]

    def _read(self, low: int, high: int) -> pa.RecordBatchReader:
        def batches() -> Iterator[pa.RecordBatch]:
            for each in self.slices[low:high]:
                for batch in _batches(self.reader, each):
                    yield batch.select(self.schema.names).cast(self.schema)

        found = reading(self.address, self.version, batches)
        return pa.RecordBatchReader.from_batches(self.schema, found)

    def close(self) -> None:
        """Do nothing: no file is kept open."""


def hudi_source(
    allowed: AllowedAddress,
    options: Mapping[str, object],
    version: int | None,
    digest: str | None,
    consent: Consent,
) -> HudiSource:
    """Read a Hudi table at an instant, by default the newest that is complete.

    Args:
        allowed: the directory of the table.
        options: of the library: for its store, and ``hoodie.*``.
        version: the instant; None: the newest.
        digest: of its files when the repush began; None: it begins now.
        consent: which files elsewhere the table may name.

    Raises:
        ConsentError: a path or a link in it leads elsewhere.
        MissingDependencyError: the package hudi is not installed.
        OptionError: there is no Hudi table, or the package cannot read it.
        RepushRefusedError: the instant is gone, or has other files now.
    """
    try:
        import hudi  # noqa: PLC0415 - the adapter's library, when it is used
    except ImportError as error:
        message, hint = "this source needs hudi", "pip install 'plait[hudi]'"
        raise MissingDependencyError(message, hint=hint, library="hudi", extra="hudi") from error
    place = allowed.text
    source = f"hudi:{place}"
    try:
        require_links_within(source, place, consent)
        table = hudi.HudiTable(place, {name: str(value) for name, value in options.items()})
        newest = table.get_timeline().get_latest_commit_timestamp()
        instant = newest if version is None else str(version)
        asked = hudi.HudiReadOptions().with_as_of_timestamp(instant)
        slices = tuple(sorted(table.get_file_slices(asked), key=_path))
        files, root = pafs.FileSystem.from_uri(place if "://" in place else absolute_path(place))
        is_local = files.type_name == "local"
        premises = Premises(source, place_of("file", root), consent) if is_local else None
        _require_below(root, slices, premises)
        found = xxhash.xxh3_128_hexdigest("\n".join(map(_files, slices)).encode())
        if digest is not None and digest != found:
            raise changed_source(source)
        reader = table.create_file_group_reader_with_options()
        counts = tuple(_count(files, root, reader, each) for each in slices)
        schema = pa.schema(table.get_schema()).remove_metadata()
        origin = _origin(table, schema)
    except TableError:
        raise
    except Exception as error:
        raise unreadable(source, version, error) from error
    return HudiSource(source, schema, reader, slices, counts, int(instant), found, origin)


def _path(each: HudiFileSlice) -> str:
    return each.base_file_relative_path()


def _files(each: HudiFileSlice) -> str:
    return " ".join([_path(each), *sorted(each.log_files_relative_paths())])


def _require_below(root: str, slices: tuple[HudiFileSlice, ...], premises: Premises | None) -> None:
    """Refuse files elsewhere that the table's commits name; raise ConsentError or ValueError."""
    for path in (each for one in slices for each in (_path(one), *one.log_files_relative_paths())):
        if premises is not None:
            premises.require(place_of("file", f"{root}/{path}"))
        elif path.startswith("/") or "://" in path or ".." in path.split("/"):
            raise ValueError(f"a commit names a file elsewhere: {path}")


def _batches(reader: HudiFileGroupReader, each: HudiFileSlice) -> Iterator[pa.RecordBatch]:
    try:
        for batch in reader.read_file_slice_stream(each):
            yield pa.record_batch(batch)
    except Exception as error:
        # The library has one class of error, which it does not export.
        raise OSError(f"{_path(each)}: {error}") from error


def _count(
    files: pafs.FileSystem, root: str, reader: HudiFileGroupReader, each: HudiFileSlice
) -> int:
    """Count the rows of a file group; only where log files change it is it read.

    What the library tells of a file is an estimate: its footer knows.
    """
    if each.has_log_files():
        return sum(batch.num_rows for batch in _batches(reader, each))
    with pq.ParquetFile(f"{root.rstrip('/')}/{_path(each)}", filesystem=files) as file:
        return int(file.metadata.num_rows)


def _origin(table: HudiTable, schema: pa.Schema) -> SourceOrigin:
    said = table.hudi_options()
    lost = []
    keys = [each for each in said.get(_KEYS, "").split(",") if each]
    if keys:
        lost.append(f"its record key {', '.join(keys)} is not taken over: name it as record_key")
    places = [each.partition(":")[0] for each in said.get(_PLACES, "").split(",") if each]
    name = said.get("hoodie.table.keygenerator.class", "").rpartition(".")[2]
    kind = said.get("hoodie.table.keygenerator.type") or name.upper().removesuffix("KEYGENERATOR")
    if places and (kind not in _PLAIN_KEYS or not set(places) <= set(schema.names)):
        lost.append(f"its partitions by {', '.join(places)} ({kind}) are not taken over")
        places = []
    older = "its older instants are not brought over"
    return SourceOrigin(tuple(places), lost=tuple(lost), older=older)
