"""Features: what a client must know to read, or to write, what a table has (RFC 0029)."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from plait.errors import UnsupportedFeatureError, shortened
from plait.model.contract import PUBLISH_OPTION
from plait.model.decision import Decision
from plait.model.instant import Operation
from plait.model.partitioning import is_plain_name
from plait.model.schema import WRITTEN_OPTION

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
UNIQUE = "unique-table-1"
"""What it must know to write a table whose keys are unique in all partitions (RFC 0030)."""
GENERATED = "generated-columns-1"
"""What it must know to write a table with generated columns: it gives them their values."""
PUBLISHED = "published-1"
"""What it must know to write a table that is published in other formats, or whose files have
columns under other names (RFC 0046)."""
DROPPED = "dropped-1"
"""The table is dropped: nobody reads or writes it before the drop is taken back (RFC 0047)."""
WRITER_FEATURES = "writer-features-1"
"""Some features are needed by writers alone, and are listed apart."""
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
    UNIQUE,
    GENERATED,
    PUBLISHED,
    DROPPED,
    WRITER_FEATURES,
)
FORMAT_VERSION = 1
"""The version of the format that ``table.json`` names."""
_SHOWN = 6
"""The most differences from the format that a message names."""
_NAME_SHOWN = 100
"""The characters of each that it shows."""
_FACTS_MAX = 100
"""The most that an error has as facts."""
VERSIONS: Mapping[int, tuple[str, ...]] = {1: KNOWN}
"""What every client of a version of the format knows; a later release adds none to a version."""
WRITERS_ONLY = frozenset((WRITTEN, REPLICAS, CHECKS, UNIQUE, GENERATED, PUBLISHED))
"""What a client that only reads need not know: it changes no row that is there."""
_OF_DEFAULTS = frozenset({"initial", "default"})
_OF_REPUSH = frozenset({"former_layouts", "repush", "repushed"})


class Features(NamedTuple):
    """What a client must know."""

    readers: tuple[str, ...]
    """Features that a client needs to read, and so to write too."""
    writers: tuple[str, ...]
    """Further features that a client needs to write."""
    used: tuple[str, ...] = ()
    """What is used of it now."""


def features_of(
    decision: Decision, held: Collection[str] = (), allowed: Collection[str] = ()
) -> Features:
    """Return what a client must know to read a decision, and to write after it.

    Args:
        decision: published, or a draft.
        held: what the table needs since an earlier decision.
        allowed: what decisions may use, so that writers must know it.
    """
    used = set(held)
    if decision.changes.moved.num_rows:
        used.add(ROW_MAPS)
    if decision.savepoint or decision.restored or decision.replayed:
        used.add(RESTORES)
    if decision.operation is Operation.EXPIRE:
        used.add(TTL)
    if decision.table is not None:
        used.update(definition_features(decision.table))
    if decision.archived:
        used.add(ARCHIVE)
    return divided(frozenset(used), frozenset(allowed))


@lru_cache(maxsize=64)  # every decision of a table asks for the same, once or twice
def divided(used: frozenset[str], allowed: frozenset[str] = frozenset()) -> Features:
    """Divide features by who needs them: what is only allowed, readers need not know yet.

    >>> divided(frozenset({"replicas-1", "ttl-1"})).writers
    ('replicas-1',)
    >>> divided(frozenset({"replicas-1", "ttl-1"})).readers[len(FEATURES) :]
    ('ttl-1', 'writer-features-1')
    >>> divided(frozenset({"ttl-1"}), frozenset({"ttl-1", "archive-1"})).writers
    ('archive-1',)
    """
    named = closed(used)
    readers = tuple(name for name in named if name not in WRITERS_ONLY)
    writers = tuple(name for name in closed(used | allowed) if name not in readers)
    marked = (WRITER_FEATURES,) if writers else ()
    return Features((*FEATURES, *readers, *marked), writers, named)


def closed(names: Iterable[str]) -> tuple[str, ...]:
    """Return features in their order, without those that every client knows."""
    given = {*names} - {*FEATURES, WRITER_FEATURES}
    return tuple(filter(given.__contains__, KNOWN))


def usable(
    in_use: Collection[str], allowed: Collection[str] | None, upgrades: str
) -> Collection[str]:
    """Return the features that decisions of a table may use.

    Args:
        in_use: what it uses now.
        allowed: what its definition lists; None: it has no list.
        upgrades: its property ``features.upgrade``.

    >>> usable((), None, "never"), usable((), ("ttl-1",), "compatible")
    ((), ('ttl-1',))
    """
    if upgrades == "always":
        return KNOWN
    if allowed is not None:
        return allowed
    return in_use if upgrades == "never" else VERSIONS[FORMAT_VERSION]


def unknown_of(names: Iterable[object]) -> list[str]:
    """Return the features that this version of Plait does not know."""
    return sorted(map(str, itertools.filterfalse(KNOWN.__contains__, names)))


def require_readable(names: Iterable[object], *, path: str) -> None:
    """Refuse to read what needs a feature that is unknown here.

    Raises:
        UnsupportedFeatureError: with the names.
    """
    unknown = unknown_of(names)
    if unknown:
        message = f"the table uses {_listed(unknown)}, which this version of Plait does not support"
        raise UnsupportedFeatureError(
            message, hint="upgrade plait", features=list(unknown[:_FACTS_MAX]), path=path
        )


def _listed(names: Sequence[str]) -> str:
    """Name some of them, and the number of the others: metadata of strangers may have any."""
    shown = ", ".join(shortened(each, _NAME_SHOWN) for each in names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"


def refuse_other_shape(parts: Sequence[str], *, path: str) -> None:
    """Refuse what was written whole, and as a format that this version of Plait does not have.

    Args:
        parts: what it has and this format has not, or the other way round; none: nothing is raised.
        path: where it is.

    Raises:
        UnsupportedFeatureError: with the parts.
    """
    if parts:
        message = f"{path} is whole, but not of format {FORMAT_VERSION}: {_listed(parts)}"
        hint = (
            "a version of Plait before the first release wrote the table, or one that is newer "
            "than this: read it with that version, and copy its rows into a new table"
        )
        raise UnsupportedFeatureError(message, hint=hint, features=list(parts), path=path)


def refuse_unknown(unknown: Collection[str], *, path: str) -> None:
    """Refuse to write a table whose writers must know what is unknown here.

    Raises:
        UnsupportedFeatureError: with the names.
    """
    if unknown:
        message = (
            f"writers of the table must know {_listed(sorted(unknown))}, which this version of "
            "Plait does not support; it can read the table"
        )
        raise UnsupportedFeatureError(
            message, hint="upgrade plait to write", features=sorted(unknown)[:_FACTS_MAX], path=path
        )


def definition_features(table: Mapping[str, object]) -> tuple[str, ...]:
    """Return what a client must know to read the definition of a table."""
    properties, contract = table.get("properties"), table.get("contract")
    written = isinstance(properties, Mapping) and WRITTEN_OPTION in properties
    published = isinstance(properties, Mapping) and bool(properties.get(PUBLISH_OPTION))
    needed_by_name = {
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
        UNIQUE: table.get("unique") == "table",
        GENERATED: any("generated" in field for field in _columns(table)),
        PUBLISHED: published or any(map(_is_stored_otherwise, _columns(table))),
        DROPPED: isinstance(contract, Mapping) and "dropped" in contract,
    }
    return tuple(name for name, needed in needed_by_name.items() if needed)


def _columns(table: Mapping[str, object]) -> Iterator[Mapping[str, object]]:
    """Return the columns of every schema in a definition; only whole ones have defaults."""
    for schema in _schemas(table):
        fields = schema.get("fields")
        listed = fields if isinstance(fields, list) else ()
        yield from (each for each in listed if isinstance(each, Mapping))


def _is_stored_otherwise(field: object) -> bool:
    """Tell whether a field, or a part of it, has another name in files."""
    if not isinstance(field, Mapping):
        return False
    kind = field.get("type")
    parts: list[object] = []
    for each in kind.values() if isinstance(kind, Mapping) else ():
        parts += each if isinstance(each, list) else [each]
    return "stored" in field or any(map(_is_stored_otherwise, parts))


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
