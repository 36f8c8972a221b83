"""What table-level decisions set: the definition of a table, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from plait.errors import CorruptMetadataError
from plait.model.bucket import BucketSpec
from plait.model.contract import Contract, Options
from plait.model.plan import COW, MOR, TableSpec
from plait.model.schema import Schema
from plait.model.ttl import Ttl
from plait.model.written import WRITTEN_OPTION


@dataclass(frozen=True, slots=True)
class TableDef:
    """What table-level decisions set, whole."""

    spec: TableSpec
    schemas: Mapping[int, Schema]
    contract: Contract
    options: Options
    policy: str
    isolation: str
    unique: str
    ttl: Ttl | None = None
    """When rows may disappear; None: never."""

    def to_dict(self) -> dict[str, object]:
        """Write it as JSON values, the form in decisions and checkpoints."""
        spec = self.spec
        return {
            "schemas": [schema.to_dict() for schema in self.schemas.values()],
            "schema_id": spec.schema.id,
            "partition_by": list(spec.partition_by),
            "bucket_spec": {
                "id": spec.buckets.id,
                "key": list(spec.buckets.key),
                "count": spec.buckets.count,
            },
            "ordering": spec.ordering,
            "table_type": spec.table_type,
            "contract": self.contract.to_dict(),
            "policy": self.policy,
            "isolation": self.isolation,
            "unique": self.unique,
            "properties": self.options.to_dict(),
            **({} if self.ttl is None else {"ttl": self.ttl.to_dict()}),
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, object], *, where: str) -> TableDef:
        """Read what ``to_dict`` wrote; raise CorruptMetadataError for anything else."""
        try:
            schemas = {s.id: s for s in map(Schema.from_dict, _items(value["schemas"]))}
            if any(len(set(s.names)) < len(s.names) for s in schemas.values()):
                message = "a schema names a column twice"
                raise ValueError(message)
            bucket = value["bucket_spec"]
            contract = value["contract"]
            properties, ttl = value["properties"], value.get("ttl")
            if not (
                isinstance(bucket, dict)
                and isinstance(contract, dict)
                and isinstance(properties, dict)
                and isinstance(ttl, dict | None)
            ):
                raise TypeError(value)
            key = tuple(str(name) for name in _items(bucket["key"]))
            ordering = value["ordering"]
            options = Options.of(properties)
            spec = TableSpec(
                schemas[int(str(value["schema_id"]))],
                tuple(str(name) for name in _items(value["partition_by"])),
                BucketSpec(int(bucket["id"]), key, int(bucket["count"])),
                None if ordering is None else str(ordering),
                str(value["table_type"]),
            )
            spec = laid_out(spec, options)
            _check_spec(spec)
            contract = Contract(**{str(k): str(v) for k, v in contract.items()})
            policy, isolation, unique = (
                str(value[name]) for name in ("policy", "isolation", "unique")
            )
            lifetime = None if ttl is None else Ttl.from_dict(ttl)
            return cls(spec, schemas, contract, options, policy, isolation, unique, lifetime)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            message = f"{where} does not define a table: {type(error).__name__}: {error}"
            raise CorruptMetadataError(message, path=where) from error


def laid_out(spec: TableSpec, options: Options) -> TableSpec:
    """Return how rows are laid out with these options."""
    statistics = options.choice("metadata.statistics") == "on"
    return replace(spec, statistics=statistics, written=options.choice(WRITTEN_OPTION) == "on")


def _check_spec(spec: TableSpec) -> None:
    ordering = [] if spec.ordering is None else [spec.ordering]
    strange = {*spec.key, *spec.partition_by, *ordering} - set(spec.schema.names)
    buckets = spec.buckets.count
    if strange or spec.table_type not in (COW, MOR) or (spec.keyed and buckets < 1):
        message = f"columns {sorted(strange)}, {buckets} buckets, type {spec.table_type!r}"
        raise ValueError(message)


def _items(value: object) -> list[object]:
    if not isinstance(value, list):
        raise TypeError(value)
    return value
