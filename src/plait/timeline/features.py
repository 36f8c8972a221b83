"""Features: what a client must know to understand a decision, a checkpoint or a definition."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from plait.model.decision import Draft
from plait.model.instant import Operation
from plait.model.partitioning import is_plain_name
from plait.model.written import WRITTEN_OPTION

FEATURES = ("slots-1", "key-digests-1", "deletion-vectors-1", "reservations-1")
"""What a client must know to read any table that this one writes."""
ROW_MAPS = "row-maps-1"
"""What it must know to read a decision that rewrote files."""
RESTORES = "restores-1"
"""What it must know from the first savepoint, restore or replay of a table on."""
TTL = "ttl-1"
"""What it must know to read a definition with a time to live, and what came of it."""
ARCHIVE = "archive-1"
"""What it must know from the first archive of a table on."""
WRITTEN = "rows-written-1"
"""What it must know to read a definition that names ``rows.written``."""
REPUSH = "repush-1"
"""Older versions may have another layout, and a directory of a repush may be there."""
BUCKET_BY = "bucket-by-1"
"""The table has, had or will have buckets by a part of its record key."""
REPLICAS = "replicas-1"
"""What it must know to write a table whose definition names sinks: they get rows first."""
PARTITION_FIELDS = "partition-fields-1"
"""The table has, had or will have partitions by transforms of columns."""
DEFAULTS = "defaults-1"
"""A column of some schema has a default, for rows that are there or for rows that come."""
CHECKS = "checks-1"
"""What it must know to write a table with checks: rows that break one are refused."""
KNOWN = (
    *FEATURES,
    ROW_MAPS,
    RESTORES,
    TTL,
    ARCHIVE,
    WRITTEN,
    REPUSH,
    BUCKET_BY,
    REPLICAS,
    PARTITION_FIELDS,
    DEFAULTS,
    CHECKS,
)
_OF_DEFAULTS = frozenset({"initial", "default"})
_OF_REPUSH = frozenset({"former_layouts", "repush", "repushed"})


def features_of(decision: Draft, held: Collection[str] = ()) -> tuple[str, ...]:
    """Return what a client must know to read a decision.

    Args:
        decision: the decision, or the draft of one.
        held: what the table needs since an earlier decision.
    """
    used = set(held)
    if decision.changes.moved.num_rows:
        used.add(ROW_MAPS)
    if decision.savepoint or decision.restored or decision.replayed:
        used.add(RESTORES)
    if decision.operation is Operation.EXPIRE:
        used.add(TTL)
    used.update(definition_features(decision.table or {}))
    if decision.archived:
        used.add(ARCHIVE)
    return (*FEATURES, *(name for name in KNOWN if name in used and name not in FEATURES))


def definition_features(table: Mapping[str, object]) -> tuple[str, ...]:
    """Return what a client must know to read the definition of a table."""
    properties = table.get("properties")
    written = isinstance(properties, Mapping) and WRITTEN_OPTION in properties
    told = {
        TTL: "ttl" in table,
        WRITTEN: written,
        REPUSH: not _OF_REPUSH.isdisjoint(table),
        BUCKET_BY: any(
            isinstance(spec, Mapping) and "by" in spec for spec in _of_layouts(table, "bucket_spec")
        ),
        PARTITION_FIELDS: any(
            isinstance(texts, list) and not all(map(is_plain_name, map(str, texts)))
            for texts in _of_layouts(table, "partition_by")
        ),
        REPLICAS: "replicas" in table,
        DEFAULTS: any(not _OF_DEFAULTS.isdisjoint(field) for field in _columns(table)),
        CHECKS: any("checks" in schema for schema in _schemas(table)),
    }
    return tuple(name for name, needed in told.items() if needed)


def _columns(table: Mapping[str, object]) -> Iterator[Mapping[str, object]]:
    """Return the columns of every schema in a definition; only whole ones have defaults."""
    for schema in _schemas(table):
        fields = schema.get("fields")
        listed = fields if isinstance(fields, list) else ()
        yield from (each for each in listed if isinstance(each, Mapping))


def _schemas(table: Mapping[str, object]) -> Iterator[Mapping[str, object]]:
    schemas = table.get("schemas")
    listed = schemas if isinstance(schemas, list) else ()
    yield from (each for each in listed if isinstance(each, Mapping))


def _of_layouts(table: Mapping[str, object], key: str) -> Iterator[object]:
    """Return what every layout in a definition has under a key."""
    former, repush = table.get("former_layouts"), table.get("repush")
    opened = [repush.get("layout")] if isinstance(repush, Mapping) else []
    for layout in (table, *(former if isinstance(former, list) else ()), *opened):
        if isinstance(layout, Mapping):
            yield layout.get(key)
