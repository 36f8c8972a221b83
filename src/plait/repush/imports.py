"""Sources that are files of Parquet, and what sources of every other format share."""

from __future__ import annotations

import fnmatch
import functools
import itertools
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as pafs
import xxhash

from plait.errors import (
    OptionError,
    RepushRefusedError,
    SchemaMismatchError,
    TableError,
)
from plait.model.consent import FILE, AllowedAddress, Consent, absolute_path
from plait.model.schema import parts_of
from plait.repush.parts import NO_ORIGIN, RowPart, SourceOrigin, spans

if TYPE_CHECKING:
    import pyarrow.dataset as pads

_WILD = "*?["
_TABLES = {
    "/_delta_log/": "a Delta table (name it as delta:PLACE)",
    "/.meta/": "a table of Plait (name its place alone)",
    ".metadata.json": "an Iceberg table (name it as iceberg:PLACE)",
}
"""By a text in a path, the kind of table that its directory belongs to."""


FOREIGN: Final = (
    OSError,
    ValueError,
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    LookupError,
    RuntimeError,
    TypeError,
    pa.ArrowException,
)
"""What libraries of other formats raise for bytes that they did not expect."""


@dataclass(frozen=True, slots=True)
class Premises:
    """The directory of a source, and which files elsewhere may be read for it.

    A file that the source's metadata, or a link in it, puts elsewhere needs the caller's consent:
    whoever wrote the source would choose what this process reads.
    """

    source: str
    root: str
    """Directory of the source, as ``place_of`` returns it."""
    consent: Consent

    def require(self, place: str) -> None:
        """Refuse a file outside.

        Args:
            place: a file, as ``place_of`` gives it.

        Raises:
            ConsentError: it lies outside, and the caller did not allow it.
        """
        steps = place.partition("://")[2].split("/")
        # A path with `.` or `..` counts as outside, whatever it resolves to: other programs may
        # resolve it in another way than this comparison of texts.
        if not place.startswith(self.root.rstrip("/") + "/") or {".", ".."}.intersection(steps):
            address = place.removeprefix(_LOCAL)
            self.consent.require(address, FILE, self.source)


_LOCAL: Final = "file://"


def place_of(scheme: str, path: str) -> str:
    """Return where a file of a source is, as it can be compared; links on a disk are followed.

    >>> place_of("s3a", "bucket/x"), place_of("file", "/a/../b")
    ('s3://bucket/x', 'file:///b')
    """
    if scheme == "file":
        return _LOCAL + os.path.realpath(path)
    return f"{'s3' if scheme in ('s3a', 's3n') else scheme}://{path}"


def require_links_within(source: str, place: str, consent: Consent) -> None:
    """Refuse links that lead out of a table on a disk.

    Raises:
        ConsentError: one does.
    """
    scheme, mark, rest = place.partition("://")
    if mark and scheme.lower() != "file":
        return
    root = rest if mark else place
    premises = Premises(source, place_of("file", root), consent)
    for directory, names, files in os.walk(root):
        for name in (*names, *files):
            path = Path(directory, name)
            if path.is_symlink():
                premises.require(place_of("file", str(path)))


@dataclass(frozen=True, slots=True)
class FileSource:
    """Files of Parquet, in the order of their paths."""

    address: str
    dataset: pads.FileSystemDataset
    files: tuple[pads.ParquetFileFragment, ...]
    counts: tuple[int, ...]
    version: int = 0
    seen: tuple[pafs.FileInfo, ...] = ()
    """The files, when they were looked at; () for a format whose files never change."""
    instants: pa.Schema | None = None
    """Columns with INT96 read as instants, if the table's columns are instants; else None."""
    origin: SourceOrigin = NO_ORIGIN

    @classmethod
    def of(
        cls,
        address: str,
        dataset: pads.FileSystemDataset,
        version: int = 0,
        seen: Sequence[pafs.FileInfo] = (),
        instants: pa.Schema | None = None,
    ) -> Self:
        """Sort the files of a dataset, and count their rows."""
        files = tuple(sorted(dataset.get_fragments(), key=lambda each: str(each.path)))
        counts = tuple(each.count_rows() for each in files)
        return cls(address, dataset, files, counts, version, tuple(seen), instants)

    @property
    def digest(self) -> str:
        """Tells whether the files are as they were; a version needs none."""
        return _digest(self.seen) if self.seen else ""

    @property
    def rows(self) -> int:
        """How many rows it has, by the footers of its files."""
        return sum(self.counts)

    @property
    def schema(self) -> pa.Schema:
        """The columns of its rows."""
        return self.dataset.schema if self.instants is None else self.instants

    @property
    def pieces(self) -> list[str]:
        """Paths of the files."""
        return [str(each.path) for each in self.files]

    def only(self, pieces: Collection[str]) -> Self:
        """Return the source with some of its files."""
        kept = [at for at, each in enumerate(self.pieces) if each in pieces]
        files, counts = (tuple(all_[at] for at in kept) for all_ in (self.files, self.counts))
        return replace(self, files=files, counts=counts)

    def parts(self, rows: int) -> list[RowPart]:
        """Cut its files, in the order of their paths."""
        return [self._part(low, high) for low, high in spans(self.counts, rows)]

    def _part(self, low: int, high: int) -> RowPart:
        whole = self.dataset
        files = list(self.files[low:high])
        part = type(whole)(files, whole.schema, whole.format, filesystem=whole.filesystem)

        def read() -> pa.RecordBatchReader:
            batches = reading(self.address, self.version, part.to_batches)
            if self.instants is not None:
                batches = (batch.cast(self.instants) for batch in batches)
            return pa.RecordBatchReader.from_batches(self.schema, batches)

        return RowPart(sum(self.counts[low:high]), read, check=lambda: self._require(low, high))

    def _require(self, low: int, high: int) -> None:
        """Refuse files that were written again while they were read."""
        seen = self.seen[low:high]
        if not seen:
            return
        # Compare after the read and before the commit: then what was read is what the list
        # describes.
        now = self.dataset.filesystem.get_file_info([each.path for each in seen])
        if _digest(now) != _digest(seen):
            raise changed_source(self.address)

    def close(self) -> None:
        """Do nothing: no file is kept open."""


def parquet_source(
    allowed: AllowedAddress, digest: str | None, wanted: pa.Schema | None, consent: Consent
) -> FileSource:
    """Read the files in a directory, one file, or those that a pattern matches.

    Args:
        allowed: a path or URL. ``*``, ``?`` and ``[...]`` match, across directories too.
        wanted: the columns that rows go into. INT96, as Spark writes its timestamps, says nothing
            of a zone: it is a moment where the column has moments, and a local time elsewhere.
            None: a table is to be made of the source; each INT96 is a moment, as in Spark.
        digest: of what was there when the repush began; None: it begins now.
        consent: what the caller allows.

    Raises:
        ConsentError: a link among the files leads elsewhere.
        OptionError: there is no file of Parquet.
        SchemaMismatchError: the files do not have the same columns.
        RepushRefusedError: files came, went or changed since.
    """
    place = allowed.text
    source = f"parquet:{place}"
    try:
        files, base, found = _listed(place)
        if files.type_name == "local":
            premises = Premises(source, place_of("file", base), consent)
            for each in found:
                premises.require(place_of("file", each.path))
        dataset = _dataset(files, base, found, wanted)
        instants = _with_int96_instants(dataset, wanted)
        if digest is None or digest == _digest(found):
            found_source = FileSource.of(source, dataset, seen=found, instants=instants)
            return replace(found_source, origin=_origin(dataset, instants))
    except FOREIGN as error:
        if isinstance(error, TableError):
            raise
        raise unreadable(source, None if digest is None else 0, error) from error
    raise changed_source(source)


def _origin(dataset: pads.FileSystemDataset, instants: pa.Schema | None) -> SourceOrigin:
    import pyarrow.dataset as pads  # noqa: PLC0415 - it brings pandas along

    first = next(dataset.get_fragments())
    places = tuple(pads.get_partition_keys(first.partition_expression))
    lost = []
    if instants is not None:
        names = ", ".join(
            new.name for new, old in zip(instants, dataset.schema, strict=True) if new != old
        )
        lost.append(f"INT96 in {names} is kept as an instant in microseconds; nanoseconds are cut")
    return SourceOrigin(places, lost=tuple(lost))


_AGAIN = "cancel the repush, and begin it again when the source stays as it is"


def changed_source(source: str) -> RepushRefusedError:
    """Return the error for a source with other files than it had."""
    message = f"the files of {source} are not those with which the repush began"
    return RepushRefusedError(message, hint=_AGAIN, source=source)


def reading(
    source: str, version: int, read: Callable[[], Iterable[pa.RecordBatch]]
) -> Iterator[pa.RecordBatch]:
    """Read the rows of a source.

    Raises:
        RepushRefusedError: they cannot be read any more.
    """
    try:
        yield from read()
    except FOREIGN as error:
        if isinstance(error, TableError):
            raise
        raise unreadable(source, version, error) from error


def unreadable(source: str, version: int | None, error: Exception) -> Exception:
    """Return the error for a source that cannot be read now, or not any more.

    Args:
        source: its address.
        version: with which the repush began; None: it begins now, and nothing was written.
        error: what the library of its format says.
    """
    # Libraries of other languages add the trace of their stack, which helps nobody here.
    said = str(error).strip().partition("\n")[0] or type(error).__name__
    if version is None:
        message = f"{source} cannot be read: {said}"
        hint = (
            "check the address, and that the library of its format reads it; what is needed to "
            "reach it goes into source_options"
        )
        return OptionError(message, hint=hint, key="source", value=source)
    message = f"{source} cannot be read any more as it was when the repush began: {said}"
    return RepushRefusedError(message, hint=_AGAIN, source=source, version=version)


def _listed(place: str) -> tuple[pafs.FileSystem, str, list[pafs.FileInfo]]:
    """Return a file system, the directory below which files are partitioned, and the files."""
    files, path = pafs.FileSystem.from_uri(place if "://" in place else absolute_path(place))
    wild = min((path.find(sign) for sign in _WILD if sign in path), default=-1)
    base = path if wild < 0 else path[:wild].rpartition("/")[0]
    info = files.get_file_info(base)
    if wild < 0 and info.type is pafs.FileType.File:
        return files, base.rpartition("/")[0], [info]
    listed = files.get_file_info(pafs.FileSelector(base, recursive=True))
    # A pattern is taken at its word. A plain directory may be a table with old versions in it, and
    # reading those as rows would duplicate data.
    if wild < 0:
        _require_plain(listed, base)
    found = [
        each
        for each in listed
        if each.type is pafs.FileType.File
        and not any(map(_is_no_data, each.path[len(base) :].split("/")))
        and (wild < 0 or fnmatch.fnmatchcase(each.path, path))
    ]
    if not found:
        raise FileNotFoundError("no file is there")
    return files, base, sorted(found, key=lambda each: each.path)


def _is_no_data(name: str) -> bool:
    """Tell files and folders that are no data by the custom of Hive and Spark.

    >>> [_is_no_data(name) for name in ("_SUCCESS", ".crc", "_day=1", "part-0.parquet")]
    [True, True, False, False]
    """
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def _require_plain(listed: Sequence[pafs.FileInfo], base: str) -> None:
    """Refuse a directory in which a table keeps files of old versions too, or of no version."""
    for each in listed:
        kind = next((kind for sign, kind in _TABLES.items() if sign in each.path[len(base) :]), "")
        if kind:
            raise OSError(f"it is {kind}, which has files of other versions too: {each.path}")


def read_options() -> pads.ParquetReadOptions:
    """Return how files are read: in nanoseconds, the default, many days of INT96 would overflow."""
    import pyarrow.dataset as pads  # noqa: PLC0415 - it brings pandas along

    return pads.ParquetReadOptions(coerce_int96_timestamp_unit="us")


def _dataset(
    files: pafs.FileSystem, base: str, found: Sequence[pafs.FileInfo], wanted: pa.Schema | None
) -> pads.FileSystemDataset:
    import pyarrow.dataset as pads  # noqa: PLC0415 - it brings pandas along

    paths = [each.path for each in found]
    read = functools.partial(
        pads.dataset,
        paths,
        filesystem=files,
        format=pads.ParquetFileFormat(read_options=read_options()),
        partition_base_dir=base,
    )
    dataset = read(partitioning="hive")
    texts = _texts(dataset, base, wanted)
    if texts:
        places = pads.get_partition_keys(next(dataset.get_fragments()).partition_expression)
        kinds = {name: dataset.schema.field(name).type for name in places}
        fields = pa.schema(kinds | dict.fromkeys(texts, pa.string()))
        dataset = read(partitioning=pads.partitioning(fields, flavor="hive"))
    types = {field.name: field.type for field in dataset.schema}
    for each in dataset.get_fragments():
        placed = pads.get_partition_keys(each.partition_expression)
        own = {name: types[name] for name in placed}
        own |= {field.name: field.type for field in each.physical_schema}
        for name in sorted(types.keys() | own.keys()):
            if types.get(name) != own.get(name):  # it would be read as null where it lacks
                message = f"{each.path} lacks column {name!r} of other files, or has it otherwise"
                hint = "write the files with the same columns, or import them one by one"
                raise SchemaMismatchError(message, hint=hint, column=name, path=each.path)
        _require_same_places(each, placed)
    return dataset


def _texts(dataset: pads.FileSystemDataset, base: str, wanted: pa.Schema | None) -> set[str]:
    """Return partition columns that Arrow takes for numbers, and whose values are texts.

    Two places such as ``zip=01234`` and ``zip=1234`` would become one. Where rows go into a column
    of numbers, as months such as ``month=07`` may, it is the table that says so.
    """
    import pyarrow.dataset as pads  # noqa: PLC0415 - it brings pandas along

    found = set()
    for each in dataset.get_fragments():
        placed = pads.get_partition_keys(each.partition_expression)
        for step in each.path[len(base) :].split("/")[:-1]:
            name, _, text = map(unquote, step.partition("="))
            value = placed.get(name)
            if isinstance(value, int) and str(value) != text:
                found.add(name)
    if wanted is None:
        return found
    return {each for each in found if each not in wanted.names or _is_text(wanted, each)}


def _is_text(schema: pa.Schema, name: str) -> bool:
    kind = schema.field(name).type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _require_same_places(file: pads.ParquetFileFragment, placed: Mapping[str, object]) -> None:
    """Refuse a file with a partition column of its own, unless all values are its folder's.

    Raises:
        SchemaMismatchError: it may have others, which Arrow would not show.
    """
    for name in sorted(set(placed).intersection(file.physical_schema.names)):
        footer = file.metadata
        column = [footer.schema.column(at).path for at in range(footer.num_columns)].index(name)
        for group in range(footer.num_row_groups):
            chunk = footer.row_group(group).column(column)
            said = chunk.statistics
            value = placed[name]
            if said is not None and said.has_null_count and said.null_count == chunk.num_values:
                same = value is None
            else:
                whole = said is not None and said.has_null_count and said.null_count == 0
                same = whole and said.has_min_max and said.min == said.max == value
            if not same:
                message = f"{file.path} has column {name!r} beside the {value!r} of its folder"
                hint = "write the files without the column, or rename the folders"
                raise SchemaMismatchError(message, hint=hint, column=name, path=file.path)


def _with_int96_instants(
    dataset: pads.FileSystemDataset, wanted: pa.Schema | None
) -> pa.Schema | None:
    """Return the columns with moments for INT96 where the columns that take them have moments.

    None if no file has INT96.

    Raises:
        SchemaMismatchError: a column is INT96 in one file and another timestamp in a second.
    """
    found: dict[str, tuple[bool, ...]] | None = None
    for each in dataset.get_fragments():
        columns = each.metadata.schema
        flags = iter([columns.column(at).physical_type == "INT96" for at in range(len(columns))])
        here = {
            field.name: tuple(itertools.islice(flags, _leaves(field.type)))
            for field in each.physical_schema
        }
        found = here if found is None else found
        if here != found:
            name = min(name for name in here if here[name] != found.get(name))
            message = f"{each.path} has column {name!r} as INT96, or the files before it have"
            hint = "import the files one by one"
            raise SchemaMismatchError(message, hint=hint, column=name, path=each.path)
    if found is None or not any(map(any, found.values())):
        return None
    types = {field.name: field.type for field in wanted or _all_instants(dataset.schema)}
    return pa.schema(
        [
            each.with_type(
                _with_instants(
                    each.type, types.get(each.name, each.type), iter(found.get(each.name, ()))
                )
            )
            for each in dataset.schema
        ]
    )


def _all_instants(fields: Iterable[pa.Field]) -> pa.Schema:
    """Return columns with moments for all timestamps, at every depth."""
    return pa.schema([each.with_type(_moments(each.type)) for each in fields])


def _moments(kind: pa.DataType) -> pa.DataType:
    t = pa.types
    if t.is_timestamp(kind):
        return pa.timestamp("us", "UTC")
    if not t.is_nested(kind):
        return kind
    parts = [each.with_type(_moments(each.type)) for each in parts_of(kind)]
    if t.is_struct(kind):
        return pa.struct(parts)
    return pa.list_(parts[0]) if t.is_list(kind) else pa.map_(*parts)


def _leaves(kind: pa.DataType) -> int:
    return sum(_leaves(each.type) for each in parts_of(kind)) if pa.types.is_nested(kind) else 1


def _with_instants(given: pa.DataType, wanted: pa.DataType, int96: Iterator[bool]) -> pa.DataType:
    """Return a type with the moments of another where its parts, in their order, are INT96."""
    t = pa.types
    if not t.is_nested(given):
        moment = next(int96, False) and t.is_timestamp(wanted)
        return wanted if moment else given
    theirs = {each.name: each.type for each in parts_of(wanted)}
    parts = [
        each.with_type(_with_instants(each.type, theirs.get(each.name, each.type), int96))
        for each in parts_of(given)
    ]
    if t.is_struct(given):
        return pa.struct(parts)
    return pa.list_(parts[0]) if t.is_list(given) else pa.map_(*parts)


def _digest(found: Sequence[pafs.FileInfo]) -> str:
    lines = (f"{each.path} {each.size} {each.mtime_ns}\n" for each in found)
    return xxhash.xxh3_128_hexdigest("".join(lines).encode())
