"""Where the items of long lists begin: found one after the other, in plain Python.

A list can only be read from its beginning. Columns read one item of each record at a time, which is
slow where few records have many. There this finds the bounds of all items, which then are read
at once; that reading checks them, so this checks no more than it needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from plait.kafka.records.avro.cursors import Budget
from plait.kafka.records.avro.schema import Array, Enum, Fixed, Map, Node, Primitive, Union

_SIZES: Final = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_NUMBERS: Final = frozenset({"int", "long"})
_DEEP: Final = 128
"""More than columns and what they pass over may have together."""
_EMPTY_ITEMS_MAX: Final = 10_000
_MORE: Final = 0x80
_BITS_MAX: Final = 70


@dataclass(slots=True)
class Walker:
    """Walks over values, one after the other; behind ``end`` there must be 10 zeros."""

    body: bytes
    end: int
    """Where the record ends that is walked."""
    budget: Budget

    def walk(self, node: Node, at: int, depth: int = 0) -> int:
        """Return where a value ends that begins at a place.

        Raises:
            ValueError: it ends too late, or its parts make no sense.
            SpentError: it has far more values than bytes.

        >>> Walker(bytes([4, 97, 98, 2]) + bytes(10), 4, Budget(1)).walk(Primitive("string"), 0)
        3
        """
        self.budget.spend()
        if isinstance(node, Primitive) and node.name in _SIZES:
            at += _SIZES[node.name]
        elif isinstance(node, Enum) or (isinstance(node, Primitive) and node.name in _NUMBERS):
            while self.body[at] >= _MORE:
                at += 1
            at += 1
        elif isinstance(node, Primitive):
            length, at = _number(self.body, at)
            if length < 0:
                raise ValueError("the value ends too early")
            at += length
        elif isinstance(node, Fixed):
            at += node.size
        else:
            at = self._parts(node, at, depth)
        if at > self.end:
            raise ValueError("the value ends too early")
        return at

    def _parts(self, node: Node, at: int, depth: int) -> int:
        if depth > _DEEP:
            raise ValueError("a value is nested too deeply")
        if isinstance(node, Union):
            branch, at = _number(self.body, at)
            if not 0 <= branch < len(node.branches):
                raise ValueError("a union has no such branch")
            return self.walk(node.branches[branch], at, depth + 1)
        if isinstance(node, (Array, Map)):
            return self._list(node.items if isinstance(node, Array) else node.entry, at, depth)
        if isinstance(node, (Primitive, Fixed, Enum)):
            return at
        for _, inner in node.fields:
            at = self.walk(inner, at, depth + 1)
        return at

    def _list(self, item: Node, at: int, depth: int) -> int:
        while True:
            count, at = _number(self.body, at)
            if not count:
                return at
            if count < 0:
                count, at = -count, _number(self.body, at)[1]
            if at > self.end or count > max(self.end - at, _EMPTY_ITEMS_MAX):
                raise ValueError("a list has more items than bytes")
            for _ in range(count):
                at = self.walk(item, at, depth + 1)


def _number(body: bytes, at: int) -> tuple[int, int]:
    byte = body[at]
    raw, shift = byte & (_MORE - 1), 7
    while byte >= _MORE:
        at += 1
        byte = body[at]
        raw |= (byte & (_MORE - 1)) << shift
        shift += 7
        if shift > _BITS_MAX:
            raise ValueError("a number has more than 64 bits")
    return (raw >> 1) ^ -(raw & 1), at + 1
