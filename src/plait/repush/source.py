"""Find the source of a repush, check it, and open it again just as it was."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from plait.arrow.check import prepare
from plait.errors import (
    InstantError,
    OptionError,
    RepushRefusedError,
    SchemaMismatchError,
    TableNotFoundError,
)
from plait.model.consent import SOURCE, AllowedAddress, Consent, absolute_path
from plait.model.partitioning import determines, parse_field
from plait.model.plan import TableLayout, TableSpec
from plait.model.repush import (
    DELTA,
    HUDI,
    ICEBERG,
    OWN,
    PARQUET,
    SAVEPOINT,
    TABLE,
    OpenRepush,
    RepushSource,
    SourceAddress,
)
from plait.repush.delta import delta_source
from plait.repush.hudi import hudi_source
from plait.repush.iceberg import iceberg_source
from plait.repush.imports import parquet_source
from plait.repush.parts import RowSource
from plait.repush.versions import VersionSource
from plait.services.maintenance.savepoint import require_savepoint
from plait.state.state import TableState
from plait.storage import open_store
from plait.txn.table_handle import TableHandle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_WITHOUT_OPTIONS = (*OWN, PARQUET)


@dataclass(frozen=True, slots=True)
class WantedSource:
    """What a caller asks to load, and how to reach it."""

    address: SourceAddress
    options: Mapping[str, object] = field(default_factory=dict)
    """Options for the file system or library that reads it; never stored, they may be secret."""
    since: int | None = None
    """Changes after this version are carried over; None: those after the repush begins."""
    version: int | None = None
    """The version or snapshot to load, of a source elsewhere that has some; None: the newest."""
    given: bool = field(kw_only=True)
    """Whether the caller named the source, and so allowed it; False if the metadata did."""

    def allowed_by(self, handle: TableHandle) -> TableHandle:
        """Return the client with the consent that its caller gave by naming the source."""
        if not self.given or self.address.own:
            return handle
        consent = handle.consent.also(located(self.address).place)
        return replace(handle, consent=consent)

    def find(self, handle: TableHandle, state: TableState) -> FoundSource:
        """Look at the source as it is now.

        Raises:
            ConsentError: the caller did not allow it, or a file elsewhere that it names.
            OptionError: there is no such source, or it takes no options.
            InstantNotFoundError, InstantExpiredError: the version cannot be read.
            MissingDependencyError: the library that reads it is not installed.
        """
        address = located(self.address)
        require_no_options(address, self.options)
        source: RowSource
        if address.own:
            saved = address.kind == SAVEPOINT
            asked = require_savepoint(state, address.place).version if saved else address.place
            version = state.require_readable(int(asked))
            source = VersionSource.of(handle, version, with_row_version=False, spark=None)
        else:
            client = self.allowed_by(handle)
            at = None if self.version is None else RepushSource(address, self.version, 0)
            source = _elsewhere(client, address, self.options, at, spec=state.table.spec)
        try:
            known = RepushSource(address, source.version, source.rows, source.digest)
            return FoundSource(known, source.schema)
        finally:
            source.close()


@dataclass(frozen=True, slots=True)
class FoundSource:
    """A source as it was when somebody looked."""

    source: RepushSource
    schema: pa.Schema
    """The columns of its rows."""

    def require_fits(self, spec: TableSpec) -> None:
        """Refuse other columns than the table's, and types that do not go into those.

        Raises:
            SchemaError: the rows do not fit.
        """
        needed = set(spec.schema.names).difference(spec.schema.generated)
        missing = sorted(needed.difference(self.schema.names))
        if missing:
            message = f"{self.source.address} lacks columns of the table: {', '.join(missing)}"
            hint = "a source has every column of the table but generated ones, and no other"
            raise SchemaMismatchError(
                message, hint=hint, column=missing[0], found=self.schema.names
            )
        for _ in prepare(self.schema.empty_table(), spec):
            pass


def require_no_options(address: SourceAddress, options: Mapping[str, object]) -> None:
    """Refuse options for a kind of source that takes none; raise OptionError."""
    if options and address.kind in _WITHOUT_OPTIONS:
        message = f"a source of the kind {address.kind} takes no source_options"
        hint = "for files of Parquet, the environment provides what is needed to reach them"
        raise OptionError(message, hint=hint, key="source_options", value=address.kind)


def located(address: SourceAddress) -> SourceAddress:
    """Return the address as it is from any working directory."""
    place = address.place
    if address.own or "://" in place:
        return address
    if address.kind == TABLE:
        return replace(address, place=open_store(place).address.uri)
    return replace(address, place=absolute_path(place))


def open_source(
    handle: TableHandle,
    opened: OpenRepush,
    options: Mapping[str, object],
    *,
    with_row_version: bool,
    spark: SparkSession | None,
) -> RowSource:
    """Open what a repush loads, as it was when that began.

    Raises:
        ConsentError: the caller did not allow it, or a file elsewhere that it names.
        RepushRefusedError: it is gone, or it has changed.
    """
    known = opened.source
    if known is None or known.address.own:
        version = opened.base if known is None else known.version
        return VersionSource.of(handle, version, with_row_version=with_row_version, spark=spark)
    try:
        spec = handle.cache.known().table.spec
        source = _elsewhere(handle, known.address, options, known, spec=spec, spark=spark)
    except (InstantError, TableNotFoundError) as error:
        message = f"{known.address} cannot be read any more in version {known.version}: {error}"
        hint = "cancel the repush, and begin it again"
        raise RepushRefusedError(
            message, hint=hint, source=str(known.address), version=known.version
        ) from error
    # The count was recorded when the repush began. A source that has another number of rows now is
    # not the one that the decision names, even if its version looks the same.
    if source.rows == known.rows:
        return source
    source.close()
    message = f"{known.address} had {known.rows} rows when the repush began, and has {source.rows}"
    hint = "cancel the repush, and begin it again"
    raise RepushRefusedError(message, hint=hint, source=str(known.address), rows=source.rows)


def _elsewhere(
    handle: TableHandle,
    address: SourceAddress,
    options: Mapping[str, object],
    known: RepushSource | None,
    *,
    spec: TableSpec,
    spark: SparkSession | None = None,
) -> RowSource:
    """Open a source outside of the table as it is known; None: as it is now."""
    allowed = handle.consent.require(address.place, SOURCE, handle.store.address.uri)
    wanted = spec.schema.arrow
    return read_source(
        address, allowed, options, known, wanted=wanted, consent=handle.consent, spark=spark
    )


def read_source(  # noqa: PLR0913 - what it is, how to reach it, and for whom
    address: SourceAddress,
    allowed: AllowedAddress,
    options: Mapping[str, object],
    known: RepushSource | None,
    *,
    wanted: pa.Schema | None,
    consent: Consent,
    spark: SparkSession | None = None,
) -> RowSource:
    """Open a source by its kind; ``wanted`` are the columns its rows go into, if there are any."""
    version = None if known is None else known.version
    if address.kind == DELTA:
        return delta_source(allowed, options, version, consent)
    if address.kind == ICEBERG:
        return iceberg_source(allowed, options, version, consent)
    digest = None if known is None else known.digest
    if address.kind == HUDI:
        return hudi_source(allowed, options, version, digest, consent)
    if address.kind == PARQUET:
        return parquet_source(allowed, digest, wanted, consent)
    return VersionSource.elsewhere(allowed, options, version, consent, spark=spark)


def same_identity(old: TableSpec, layout: TableLayout) -> bool:
    """Tell whether a layout holds the same rows for one row as a table does now (INV-08)."""
    if not old.keyed:
        return True
    now, then = (
        {field for field in map(parse_field, texts) if not determines((), old.key, field)}
        for texts in (old.layout.partition_by, layout.partition_by)
    )
    return now == then


def require_identity(old: TableSpec, layout: TableLayout) -> None:
    """Refuse a layout in which other columns make a row one.

    Raises:
        OptionError: it is no layout for a source.
    """
    if same_identity(old, layout):
        return
    names = list(layout.partition_by)
    what = "the partition fields outside the record key"
    message = f"a repush from a source cannot change {what}: partition_by={names}"
    hint = "repush from the source first, then change the partition columns by a second repush"
    raise OptionError(message, hint=hint, key="partition_by", value=", ".join(names))
