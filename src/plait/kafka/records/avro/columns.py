"""Avro records become columns of a table, field by field for all records at once."""

from __future__ import annotations

import uuid
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from plait.arrow.cast import Fit, apply, fit
from plait.kafka.records.avro.cursors import STEPS_BYTE, Cursors, Ints, SpentError
from plait.kafka.records.avro.schema import Array, Enum, Fixed, Map, Node, Primitive, Record, Union
from plait.kafka.records.avro.walk import Walker
from plait.model.schema import type_name

_T = pa.types
_DIGITS_MAX: Final = 38
_DEEP: Final = 64
_SIZE_MAX: Final = 1 << 40
"""What a value may have at least: more is more than any record has."""
_EMPTY_ITEMS_MAX: Final = 10_000
"""Items of no bytes cost nothing to claim: more than so many are refused."""
_SHORT: Final = 2
_NARROW: Final = 32
"""Items are read all at once if one of each record would be fewer than these at a time."""
_INT: Final = (-(1 << 31), (1 << 31) - 1)
_FLOATS: Final[Mapping[str, np.dtype[np.floating]]] = {
    "float": np.dtype(np.float32),
    "double": np.dtype(np.float64),
}
_UUID_BYTES: Final = 16
_NATURAL: Final = {
    ("null", ""): pa.null(),
    ("boolean", ""): pa.bool_(),
    ("int", ""): pa.int32(),
    ("int", "date"): pa.date32(),
    ("long", ""): pa.int64(),
    ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "timestamp-nanos"): pa.timestamp("ns", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("long", "local-timestamp-nanos"): pa.timestamp("ns"),
    ("float", ""): pa.float32(),
    ("double", ""): pa.float64(),
    ("bytes", ""): pa.binary(),
    ("string", ""): pa.string(),
}


def natural_type(node: Primitive | Fixed | Enum) -> pa.DataType:
    """Return the Arrow type that has the values of an Avro type; its own if it is logical.

    >>> natural_type(Primitive("long"))
    DataType(int64)
    """
    if isinstance(node, Enum):
        return pa.string()
    logical = node.logical
    plain = "bytes" if isinstance(node, Fixed) else node.name
    if logical.name == "decimal" and plain == "bytes" and 0 < logical.precision <= _DIGITS_MAX:
        return pa.decimal128(logical.precision, logical.scale)
    if isinstance(node, Fixed) and logical.name == "uuid" and node.size == _UUID_BYTES:
        return pa.string()
    return _NATURAL.get((plain, logical.name)) or _NATURAL[plain, ""]


def misfit(node: Node, kind: pa.DataType) -> str:
    """Say why no value of an Avro type fits a column type; empty if some do."""
    if isinstance(node, Union):
        values = [branch for branch in node.branches if branch != Primitive("null")]
        reasons = [misfit(branch, kind) for branch in values]
        return "" if not reasons or "" in reasons else reasons[-1]
    if isinstance(node, Record) and _T.is_struct(kind):
        known = {each.name: each.type for each in kind.fields}
        reasons = [
            f"{name}: {why}"
            for name, inner in node.fields
            if name in known and (why := misfit(inner, known[name]))
        ]
        return reasons[0] if reasons else ""
    if isinstance(node, Array) and _T.is_list(kind):
        return misfit(node.items, kind.value_type)
    if isinstance(node, Map) and _T.is_map(kind) and _T.is_string(kind.key_type):
        return misfit(node.values, kind.item_type)
    if isinstance(node, (Primitive, Fixed, Enum)):
        given = natural_type(node)
        both_bytes = {given, kind} == {pa.string(), pa.binary()}
        if fit(given, kind) is not Fit.NEVER or (both_bytes and isinstance(node, Primitive)):
            return ""
        name = node.logical.name if not isinstance(node, Enum) else ""
        return f"{name or _name_of(node)} does not fit {type_name(kind)}"
    return f"{_name_of(node)} does not fit {type_name(kind)}"


def _name_of(node: Node) -> str:
    return node.name if isinstance(node, Primitive) else type(node).__name__.lower()


def smallest(node: Node, known: dict[int, int]) -> int:
    """Return how many bytes a value of a type has at least.

    Args:
        node: the type.
        known: what was found of types by their identity; more is added. A type is computed once,
            however often it is used, and one that has itself as a part counts as nothing there.
    """
    size = known.get(id(node))
    if size is None:
        known[id(node)] = 0
        size = known[id(node)] = min(_smallest(node, known), _SIZE_MAX)
    return size


def _smallest(node: Node, known: dict[int, int]) -> int:
    if isinstance(node, Record):
        return sum(smallest(inner, known) for _, inner in node.fields)
    if isinstance(node, Fixed):
        return node.size
    sizes = {"null": 0, "float": 4, "double": 8}
    return sizes.get(node.name, 1) if isinstance(node, Primitive) else 1


@dataclass(slots=True)
class TypeFacts:
    """What was computed of the types of a schema, by their identity, while it is alive."""

    sizes: dict[int, int] = field(default_factory=dict)
    symbols: dict[int, pa.Array] = field(default_factory=dict)


class Columns:
    """Reads values of Avro types at cursors, into Arrow arrays of a table's types.

    An array has one entry for each record that is read; those of records that are refused mean
    nothing.
    """

    def __init__(self, cursors: Cursors, known: TypeFacts | None = None) -> None:
        self._cursors = cursors
        self._known = known or TypeFacts()

    def read(self, node: Node, kind: pa.DataType, rows: Ints) -> pa.Array:
        """Read a value of each record."""
        if not len(rows):
            return pa.nulls(0, kind)
        self._cursors.budget.spend()
        if isinstance(node, Union):
            return self._union(node, kind, rows)
        if isinstance(node, Record) and _T.is_struct(kind):
            return self.record(node, kind, rows)
        if isinstance(node, Array) and _T.is_list(kind):
            return self._list(node, kind, rows)
        if isinstance(node, Map) and _T.is_map(kind) and _T.is_string(kind.key_type):
            return self._map(node, kind, rows)
        why = misfit(node, kind)
        if why or not isinstance(node, (Primitive, Fixed, Enum)):
            self._cursors.refuse(rows, why)
            return pa.nulls(len(rows), kind)
        return self._converted(self._plain(node, rows), kind, rows)

    def record(self, node: Record, kind: pa.StructType, rows: Ints) -> pa.StructArray:
        """Read the fields that the struct has, by their names; the others are passed over."""
        known = {each.name: each for each in kind.fields}
        found: dict[str, pa.Array] = {}
        for name, inner in node.fields:
            if name not in known:
                self.skip(inner, rows)
                continue
            found[name] = self.read(inner, known[name].type, rows)
        children = [
            found[each.name] if each.name in found else pa.nulls(len(rows), each.type)
            for each in kind.fields
        ]
        return pa.StructArray.from_arrays(children, fields=list(kind.fields))

    def skip(self, node: Node, rows: Ints, depth: int = 0) -> None:
        """Pass over a value of each record."""
        cursors = self._cursors
        if depth > _DEEP:
            cursors.refuse(rows, "a value is nested too deeply")
            return
        if not len(rows):
            return
        cursors.budget.spend()
        if isinstance(node, Record):
            for _, inner in node.fields:
                self.skip(inner, rows, depth + 1)
        elif isinstance(node, Union):
            for at, branch in self._branches(node, rows):
                self.skip(branch, rows[at], depth + 1)
        elif isinstance(node, (Array, Map)):
            item = node.items if isinstance(node, Array) else node.entry
            self._items(item, rows, lambda part, some, _: part.skip(item, some, depth + 1))
        else:
            self._skip_plain(node, rows)

    def _skip_plain(self, node: Primitive | Fixed | Enum, rows: Ints) -> None:
        if isinstance(node, Fixed):
            self._cursors.spans_of(rows, node.size)
        elif isinstance(node, Enum) or node.name in ("int", "long"):
            self._cursors.longs(rows)
        elif node.name in _FLOATS:
            self._cursors.spans_of(rows, _FLOATS[node.name].itemsize)
        elif node.name == "boolean":
            self._cursors.booleans(rows)
        elif node.name != "null":
            self._cursors.spans(rows)

    # --- values without parts ---------------------------------------------------------------

    def _plain(self, node: Primitive | Fixed | Enum, rows: Ints) -> pa.Array:
        """Read values in the natural type; texts as bytes, which are checked with the cast."""
        cursors, kind = self._cursors, natural_type(node)
        if isinstance(node, Enum):
            return self._enum(node, rows)
        if isinstance(node, Fixed) or node.name in ("bytes", "string"):
            size = node.size if isinstance(node, Fixed) else None
            spans = cursors.spans(rows) if size is None else cursors.spans_of(rows, size)
            if _T.is_decimal(kind):
                buffers = [None, cursors.wide_numbers(rows, spans)]
                return pa.Array.from_buffers(kind, len(rows), buffers)
            found = cursors.binary(spans)
            if size is not None and _T.is_string(kind):
                return pa.array([str(uuid.UUID(bytes=each)) for each in self._full(found, size)])
            return found
        if node.name == "null":
            return pa.nulls(len(rows))
        if node.name == "boolean":
            return cursors.booleans(rows)
        if node.name in _FLOATS:
            return cursors.numbers(rows, _FLOATS[node.name])
        values = cursors.longs(rows)
        if node.name == "long":
            return pa.array(values).view(kind)
        wide = (values < _INT[0]) | (values > _INT[1])
        if wide.any():
            cursors.refuse(rows[wide], "a number has more than 32 bits")
        return pa.array(values.astype(np.int32)).view(kind)

    def _enum(self, node: Enum, rows: Ints) -> pa.Array:
        places = self._cursors.longs(rows)
        wrong = (places < 0) | (places >= len(node.symbols))
        if wrong.any():
            self._cursors.refuse(rows[wrong], f"{node.name} has no such symbol")
        places[wrong] = 0
        symbols = self._known.symbols.get(id(node))
        if symbols is None:
            symbols = pa.array([*node.symbols, None], pa.string())
            self._known.symbols[id(node)] = symbols
        return symbols.take(pa.array(places))

    @staticmethod
    def _full(found: pa.Array, size: int) -> list[bytes]:
        """Return bytes of one length; those of refused records are made up."""
        return [each if len(each) == size else bytes(size) for each in found.to_pylist()]

    def _converted(self, array: pa.Array, kind: pa.DataType, rows: Ints) -> pa.Array:
        """Bring natural values to the column's type; refuse the records of those that change."""
        try:
            if _T.is_decimal(array.type):
                array.validate(full=True)
            return array.cast(kind) if _T.is_binary(array.type) else apply(array, kind)
        except ValueError as error:
            if len(array) == 1:
                self._cursors.refuse(rows, str(error) or f"a value is no {type_name(kind)}")
                return pa.nulls(1, kind)
        half = len(array) // 2
        parts = [
            self._converted(array.slice(0, half), kind, rows[:half]),
            self._converted(array.slice(half), kind, rows[half:]),
        ]
        return pa.concat_arrays(parts)

    # --- values with parts ------------------------------------------------------------------

    def _branches(self, node: Union, rows: Ints) -> list[tuple[Ints, Node]]:
        """Read which branch each record has; return the places among ``rows`` for each branch."""
        chosen = self._cursors.longs(rows)
        wrong = (chosen < 0) | (chosen >= len(node.branches))
        if wrong.any():
            self._cursors.refuse(rows[wrong], "a union has no such branch")
        given = np.unique(chosen[~wrong] if wrong.any() else chosen).tolist()
        return [(np.flatnonzero(chosen == number), node.branches[number]) for number in given]

    def _union(self, node: Union, kind: pa.DataType, rows: Ints) -> pa.Array:
        parts, taken, known = [pa.nulls(1, kind)], np.zeros(len(rows), np.int64), 1
        for at, branch in self._branches(node, rows):
            if branch == Primitive("null"):
                continue
            part = self.read(branch, kind, rows[at])
            if len(at) == len(rows):
                return part
            taken[at] = np.arange(known, known + len(at))
            known += len(at)
            parts.append(part)
        return pa.concat_arrays(parts).take(pa.array(taken))

    def _items(self, item: Node, rows: Ints, read: ReadItems) -> Ints:
        """Read the items of a list of each record, one of each at a time; return the counts.

        Where few records have many items, all of a block are read at once.
        """
        size = smallest(item, self._known.sizes)
        lengths, left = np.zeros((2, len(rows)), np.int64)
        ends = np.arange(len(rows))  # those whose block is at its end
        while True:
            if len(ends):
                left[ends] = self._block(rows[ends], size)
                if not size:
                    self._cursors.refuse(rows[lengths + left > _EMPTY_ITEMS_MAX], "a long list")
            active = np.flatnonzero((left > 0) & self._cursors.sound(rows))
            if not len(active):
                return lengths
            wanted = left[active]
            if wanted.max() > _SHORT and wanted.sum() < _NARROW * wanted.max():
                taken = self._walked(item, rows[active], wanted, read)
            else:
                read(self, rows[active], rows[active])
                taken = np.ones(len(active), np.int64)
            lengths[active] += taken
            left[active] -= taken
            ends = active[left[active] == 0]

    def _walked(self, item: Node, rows: Ints, counts: Ints, read: ReadItems) -> Ints:
        """Read the items of a block of each record at once; return how many they were."""
        cursors = self._cursors
        bounds, walker = array("q"), Walker(cursors.body, 0, cursors.budget)
        taken = np.zeros(len(rows), np.int64)
        for number, (row, count) in enumerate(zip(rows.tolist(), counts.tolist(), strict=True)):
            at, known = int(cursors.at[row]), len(bounds)
            walker.end = int(cursors.end[row])
            try:
                for _ in range(count):
                    bounds.append(at)
                    at = walker.walk(item, at)
                    bounds.append(at)
            except SpentError:
                raise
            except ValueError as error:
                del bounds[known:]
                cursors.refuse(rows[number : number + 1], str(error))
                continue
            cursors.at[row] = at
            taken[number] = count
        places = np.frombuffer(bounds, np.int64).reshape(-1, 2)
        inner = Cursors(cursors.body, places[:, 0].copy(), places[:, 1].copy(), cursors.budget)
        owners = np.repeat(rows, taken)
        read(Columns(inner, self._known), np.arange(len(places)), owners)
        inner.finish()
        for place, reason in inner.refused.items():
            cursors.refuse(owners[place : place + 1], reason)
        return taken

    def _block(self, rows: Ints, size: int) -> Ints:
        """Read how many items come next; a negative number is followed by their size in bytes."""
        cursors = self._cursors
        counts = cursors.longs(rows)
        negative = counts < 0
        if negative.any():
            cursors.longs(rows[negative])
            counts = np.abs(counts)
        most = cursors.left(rows) // size if size else np.int64(_EMPTY_ITEMS_MAX)
        wrong = (counts < 0) | (counts > most)
        if wrong.any():
            cursors.refuse(rows[wrong], "a list has more items than bytes")
        counts = np.where(cursors.sound(rows), counts, 0)
        if not size:
            cursors.budget.spend(STEPS_BYTE * int(counts.sum()))
        return counts

    def _list(self, node: Array, kind: pa.ListType, rows: Ints) -> pa.Array:
        offsets, values = self._lists(node.items, kind.value_type, rows)
        return pa.ListArray.from_arrays(offsets, values, type=kind)

    def _map(self, node: Map, kind: pa.MapType, rows: Ints) -> pa.Array:
        entry = pa.struct([("key", kind.key_type), ("value", kind.item_type)])
        offsets, entries = self._lists(node.entry, entry, rows)
        keys, values = entries.flatten()
        keys = keys.fill_null("") if keys.null_count else keys  # of a refused record
        return pa.MapArray.from_arrays(offsets, keys, values, type=kind)

    def _lists(self, item: Node, kind: pa.DataType, rows: Ints) -> tuple[pa.Array, pa.Array]:
        """Read lists; return their offsets and all of their items."""
        parts: list[pa.Array] = [pa.nulls(0, kind)]
        owners: list[Ints] = []

        def read(columns: Columns, some: Ints, owning: Ints) -> None:
            parts.append(columns.read(item, kind, some))
            owners.append(owning)

        offsets = _offsets(self._items(item, rows, read))
        return offsets, pa.concat_arrays(parts).take(_in_order(owners))


ReadItems: TypeAlias = Callable[["Columns", Ints, Ints], None]
"""Reads an item at each of some cursors, and is told to which records they belong."""


def _offsets(lengths: Ints) -> pa.Array:
    return pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))


def _in_order(owners: list[Ints]) -> pa.Array:
    """Return the order that puts the items of each record together."""
    every = np.concatenate([np.empty(0, np.int64), *owners])
    return pa.array(np.argsort(every, kind="stable"))
