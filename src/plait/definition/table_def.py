"""What table-level decisions set: the definition of a table, checked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from plait.definition.features import (
    BUCKET_BY,
    CHECKS,
    DEFAULTS,
    DROPPED,
    GENERATED,
    PARTITION_FIELDS,
    PUBLISHED,
    REPLICAS,
    REPUSH,
    TTL,
    UNIQUE,
    WRITTEN,
    refuse_other_shape,
)
from plait.definition.ttl import Ttl
from plait.errors import CorruptMetadataError, FormatError, RepushOpenError, TableDroppedError
from plait.model.cached import cached_property
from plait.model.contract import OPTIONS, PUBLISH_OPTION, Contract, Options
from plait.model.instant import time_ms
from plait.model.partitioning import is_plain_name
from plait.model.plan import (
    UNIQUE_PARTITION,
    UNIQUE_TABLE,
    Compression,
    FormerLayout,
    Spans,
    TableLayout,
    TableSpec,
)
from plait.model.repush import OpenRepush, is_repush_directory
from plait.model.schema import WRITTEN_OPTION, Schema
from plait.model.sink_ledger import addresses_of

_ALWAYS = (
    *("schemas", "schema_id", "partition_by", "bucket_spec", "ordering", "table_type"),
    *("contract", "policy", "isolation", "unique", "properties"),
)
"""What every definition has."""
_INDEX = re.compile(r"[0-9a-f]{16}", re.ASCII)
_FAR = (1 << 63) - 1
"""A version that no table has."""


@dataclass(frozen=True)  # no slots: what follows from it is computed once
class TableDef:
    """The definition of a table: what table-level decisions record, whole.

    Engines see a part of it, its ``spec``. ``define_table`` makes that of a new table, and
    ``from_dict`` that of one that is there; changes of a table make others by ``replace``.
    """

    spec: TableSpec
    schemas: Mapping[int, Schema]
    contract: Contract
    options: Options
    policy: str
    isolation: str
    ttl: Ttl | None = None
    """When rows may disappear; None: never."""
    former: tuple[FormerLayout, ...] = ()
    """The layouts that older versions have, oldest first."""
    repush: OpenRepush | None = None
    """The repush that is under way."""
    repushed: tuple[str, ...] = ()
    """The directories of repushes that are over, oldest first."""
    replicas: Mapping[str, str] = field(default_factory=dict)
    """The addresses of the sinks that every writer writes to first, by name (RFC 0022)."""
    former_replicas: Mapping[str, str] = field(default_factory=dict)
    """The addresses of sinks that were removed: ledgers name sinks by their names alone."""
    allowed: tuple[str, ...] | None = None
    """The features that decisions may use; None: see ``features.upgrade`` (RFC 0029)."""
    strange: tuple[str, ...] = ()
    """Properties that this version of Plait does not know: it reads the table, and no more."""
    index: str | None = None
    """The name of the record index; None: the table has none (RFC 0028)."""
    dropped_indexes: tuple[str, ...] = ()
    """The names of record indexes that are over, oldest first."""

    @property
    def moves(self) -> tuple[int, ...]:
        """The last versions before rows came into other places; other names are no such move."""
        later = (*(each.layout.id for each in self.former[1:]), self.spec.layout.id)
        pairs = zip(self.former, later, strict=False)  # without former ones there is none
        return tuple(each.until for each, then in pairs if each.layout.id != then)

    @property
    def repush_directories(self) -> frozenset[str]:
        """The directories of every repush that the table ever had."""
        opened = () if self.repush is None else (self.repush.directory,)
        return frozenset((*self.repushed, *opened))

    @property
    def kept(self) -> tuple[int, ...]:
        """Versions that the open repush reads, however old they are."""
        source = None if self.repush is None else self.repush.source
        return () if source is None or source.kept is None else (source.kept,)

    def builds(self, directory: str) -> bool:
        """Tell whether the repush of a directory is under way."""
        return self.repush is not None and self.repush.directory == directory

    def require_no_repush(self) -> None:
        """Refuse other columns while a repush copies those that there are.

        Raises:
            RepushOpenError: one is open.
        """
        if self.repush is not None:
            directory, base = self.repush.directory, self.repush.base
            message = f"a repush is open, in {directory}, and it copies the columns as they are"
            hint = "let it end, or cancel it with Table.layout.cancel()"
            raise RepushOpenError(message, hint=hint, directory=directory, base=base)

    @property
    def upgrades(self) -> str:
        """How a feature is turned on that nothing uses yet (option ``features.upgrade``)."""
        return self.options.choice("features.upgrade")

    @cached_property
    def published(self) -> tuple[str, ...]:
        """The formats in which each version is published for other engines (RFC 0046)."""
        return self.options.names(PUBLISH_OPTION)

    @cached_property
    def has_upkeep(self) -> bool:
        """Whether clients do upkeep after a commit: publish it, fold the index, or compact."""
        folds = self.index is not None or self.options.choice("compact") != "off"
        return folds or bool(self.published)

    @cached_property
    def features(self) -> tuple[str, ...]:
        """What a client must know to understand the table, beside what every client knows."""
        opened = () if self.repush is None else (self.repush.layout,)
        layouts = (self.spec.layout, *(each.layout for each in self.former), *opened)
        needed_by_name = {
            REPUSH: self.former or self.repushed or self.repush,
            BUCKET_BY: any(each.buckets.by for each in layouts),
            PARTITION_FIELDS: not all(
                is_plain_name(text) for each in layouts for text in each.partition_by
            ),
            DEFAULTS: any(each.defaults for each in self.schemas.values()),
            CHECKS: any(each.checks for each in self.schemas.values()),
            TTL: self.ttl is not None,
            WRITTEN: WRITTEN_OPTION in self.options.to_dict(),
            REPLICAS: self.replicas,
            UNIQUE: self.spec.unique == UNIQUE_TABLE,
            GENERATED: any(each.generated for each in self.schemas.values()),
            PUBLISHED: self.published
            or any(n.stored_name for each in self.schemas.values() for n in each.notes.values()),
            DROPPED: self.contract.dropped,
        }
        return tuple(name for name, needed in needed_by_name.items() if needed)

    def only_comments(self, schema_id: int) -> bool:
        """Tell whether a schema has the columns of the one before it, with other comments."""
        before = self.schemas.get(schema_id - 1)  # a change after a restore leaves that id out
        return before is not None and self.schemas[schema_id].same_columns(before)

    def spec_at(self, version: int, schema_id: int) -> TableSpec:
        """Return how rows lay at a version."""
        schema = self.schemas[schema_id]
        for each in self.former:
            if version <= each.until:
                return replace(self.spec, schema=schema, layout=each.layout)
        return self.spec if schema is self.spec.schema else replace(self.spec, schema=schema)

    def laid_out(self, spec: TableSpec, *, since: int) -> TableDef:
        """Return the definition with another schema or layout, which holds from a version on."""
        former = self.former
        if spec.layout != self.spec.layout:
            former = (*former, FormerLayout(self.spec.layout, since - 1))
        return replace(self, spec=spec, former=former)

    def new_layout_id(self) -> int:
        """Return an id that no layout of the table has, or will have."""
        ids = [self.spec.layout.id, *(each.layout.id for each in self.former)]
        return 1 + max(ids if self.repush is None else [*ids, self.repush.layout.id])

    def to_dict(self) -> dict[str, object]:
        """Write it as JSON values, the form in decisions and checkpoints."""
        spec = self.spec
        return {
            "schemas": [schema.to_dict() for schema in self.schemas.values()],
            "schema_id": spec.schema.id,
            **spec.layout.to_dict(),
            "contract": self.contract.to_dict(),
            "policy": self.policy,
            "isolation": self.isolation,
            "unique": self.spec.unique,
            "properties": self.options.to_dict(),
            **({} if self.ttl is None else {"ttl": self.ttl.to_dict()}),
            **({"former_layouts": [each.to_dict() for each in self.former]} if self.former else {}),
            **({} if self.repush is None else {"repush": self.repush.to_dict()}),
            **({"repushed": list(self.repushed)} if self.repushed else {}),
            **({"replicas": dict(self.replicas)} if self.replicas else {}),
            **({"former_replicas": dict(self.former_replicas)} if self.former_replicas else {}),
            **({} if self.allowed is None else {"features": list(self.allowed)}),
            **({} if self.index is None else {"index": self.index}),
            **({"dropped_indexes": list(self.dropped_indexes)} if self.dropped_indexes else {}),
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, object], *, where: str) -> TableDef:
        """Read what ``to_dict`` wrote; raise CorruptMetadataError for anything else."""
        try:
            schemas = _schemas(value["schemas"])
            contract, properties, ttl = value["contract"], value["properties"], value.get("ttl")
            if not (
                isinstance(contract, dict)
                and isinstance(properties, dict)
                and isinstance(ttl, dict | None)
            ):
                raise TypeError(value)
            layout, (options, strange) = TableLayout.from_dict(value), _options(properties)
            spec = TableSpec(schemas[int(str(value["schema_id"]))], layout)
            unique = str(value["unique"])
            if unique not in (UNIQUE_PARTITION, UNIQUE_TABLE):
                raise ValueError(unique)
            spec = replace(with_options(spec, options), unique=unique)
            _check_spec(spec)
            repush = value.get("repush")
            repushed = tuple(str(each) for each in _items(value.get("repushed", [])))
            if not all(map(is_repush_directory, repushed)):
                raise ValueError(repushed)
            contract = Contract(**{str(k): str(v) for k, v in contract.items()})
            if contract.dropped:
                time_ms(contract.dropped)
            policy, isolation = (str(value[name]) for name in ("policy", "isolation"))
            lifetime = None if ttl is None else Ttl.from_dict(ttl)
            return cls(
                spec,
                schemas,
                contract,
                options,
                policy,
                isolation,
                lifetime,
                tuple(map(FormerLayout.from_dict, _items(value.get("former_layouts", [])))),
                None if repush is None else OpenRepush.from_dict(repush),
                repushed,
                addresses_of(value.get("replicas", {})),
                addresses_of(value.get("former_replicas", {})),
                _allowed(value.get("features")),
                strange,
                *_indexes(value),
            )
        except (KeyError, TypeError, ValueError, OverflowError, FormatError) as error:
            refuse_other_shape(_lacking(value), path=where)
            message = f"{where} does not define a table: {type(error).__name__}: {error}"
            raise CorruptMetadataError(message, path=where) from error


def require_not_dropped(table: TableDef, uri: str) -> None:
    """Refuse a table that was dropped; raise TableDroppedError."""
    if table.contract.dropped:
        raise dropped_error(uri, table.contract.dropped)


def dropped_error(uri: str, dropped: str) -> TableDroppedError:
    """Return the error for whoever would read or write a table that was dropped."""
    message = f"the table at {uri} was dropped"
    hint = "its catalog can undrop it until its files are purged: see Catalog.dropped()"
    return TableDroppedError(message, hint=hint, uri=uri, dropped=dropped)


def _lacking(value: Mapping[str, object]) -> list[str]:
    return [f"no table.{name}" for name in _ALWAYS if name not in value]


def laid_out_with(table: TableDef, version: int) -> Spans:
    """Return the versions that lay out rows as a version does: first and last of each span.

    Other names of columns are the same layout. A restore over a repush brings a layout back, and
    the versions between have another one: so there may be several spans. For the newest layout
    the last version is far away.
    """
    ends = [*((each.until, each.layout.id) for each in table.former), (_FAR, table.spec.layout.id)]
    starts = [0, *(until + 1 for until, _ in ends)]
    same = next(layout for until, layout in ends if version <= until)
    spans: list[tuple[int, int]] = []
    for start, (last, layout) in zip(starts, ends, strict=False):
        if layout == same:
            goes_on = bool(spans) and spans[-1][1] == start - 1
            spans.append((spans.pop()[0] if goes_on else start, last))
    return tuple(spans)


def with_options(spec: TableSpec, options: Options) -> TableSpec:
    """Return a spec with what these options say of new files.

    Raises:
        OptionError: they do not fit together.
    """
    return replace(
        spec,
        statistics=options.choice("metadata.statistics") == "on",
        keeps_row_version=options.choice(WRITTEN_OPTION) == "on",
        compression=Compression.of(options),
    )


def _schemas(value: object) -> dict[int, Schema]:
    return {schema.id: schema for schema in map(Schema.from_dict, _items(value))}


def is_index(name: str) -> bool:
    """Tell whether this can be the name of a record index."""
    return _INDEX.fullmatch(name) is not None


def _indexes(value: Mapping[str, object]) -> tuple[str | None, tuple[str, ...]]:
    """Return the name of the record index, and of those that are over."""
    index = value.get("index")
    dropped = tuple(str(each) for each in _items(value.get("dropped_indexes", [])))
    name = None if index is None else str(index)
    if not all(map(is_index, [*dropped, *([] if name is None else [name])])):
        raise ValueError(index)
    return name, dropped


def _check_spec(spec: TableSpec) -> None:
    ordering = [] if spec.layout.ordering is None else [spec.layout.ordering]
    strange = {*spec.key, *spec.partition_sources, *ordering} - set(spec.schema.names)
    if strange:
        raise ValueError(f"columns {sorted(strange)}")
    for each in spec.fields:
        each.kind(spec.schema.arrow)


def _allowed(value: object) -> tuple[str, ...] | None:
    return None if value is None else tuple(map(str, _items(value)))


def _options(properties: Mapping[str, object]) -> tuple[Options, tuple[str, ...]]:
    """Return the options that are known here, and the names of the others."""
    strange = tuple(sorted(key for key in properties if key not in OPTIONS))
    known = {key: value for key, value in properties.items() if key in OPTIONS}
    return Options.of(known), strange


def _items(value: object) -> list[object]:
    if not isinstance(value, list):
        raise TypeError(value)
    return value
