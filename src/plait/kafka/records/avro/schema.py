"""Avro schemas, parsed from their JSON with all names resolved (Avro 1.12)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from plait.model.document import load_json

PRIMITIVES: Final = frozenset(
    {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}
)
_DEEP: Final = 64
_JSON_DEEP: Final = 4 * _DEEP
"""A level of a record is an object, a list of fields, and an object for each."""
_SIZE_MAX: Final = 1 << 30
_TEXT_MAX: Final = 16 << 20
"""Bytes of a schema and of all that it refers to, each."""
PARTS_MAX: Final = 100_000
"""Maximum number of types, fields, branches and symbols of a schema and its references."""
_DIGITS_MAX: Final = 1000


@dataclass(frozen=True, slots=True)
class Logical:
    """What the bytes of a type stand for; "" for themselves."""

    name: str = ""
    precision: int = 0
    scale: int = 0


@dataclass(frozen=True, slots=True)
class Primitive:
    """A type with a name of Avro's own."""

    name: str
    logical: Logical = Logical()


@dataclass(frozen=True, slots=True)
class Fixed:
    """Type ``fixed``: a value of a fixed number of bytes."""

    name: str
    size: int
    logical: Logical = Logical()


@dataclass(frozen=True, slots=True)
class Enum:
    """One of some texts."""

    name: str
    symbols: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Array:
    """A list."""

    items: Node


@dataclass(frozen=True, slots=True)
class Map:
    """A map from texts."""

    values: Node
    entry: Record = field(init=False, repr=False, compare=False)
    """A key and its value, of which a map is a list."""

    def __post_init__(self) -> None:
        """Make the record of an entry once: what is known of a type is known by its identity."""
        entry = Record("", [("key", Primitive("string")), ("value", self.values)])
        object.__setattr__(self, "entry", entry)


@dataclass(frozen=True, slots=True)
class Union:
    """A value of one of several types."""

    branches: tuple[Node, ...]


@dataclass(eq=False, slots=True)
class Record:
    """Named fields; they may hold the record itself."""

    name: str
    fields: list[tuple[str, Node]] = field(default_factory=list)


Node: TypeAlias = Primitive | Fixed | Enum | Array | Map | Union | Record


def parse_schema(text: str, references: Sequence[str] = ()) -> Node:
    """Return the schema that a JSON text says; it may use types that references define.

    Raises:
        ValueError: it is no schema.

    >>> parse_schema('{"type": "array", "items": "long"}')
    Array(items=Primitive(name='long', logical=Logical(name='', precision=0, scale=0)))
    """
    names = _Names()
    try:
        for each in references:
            names.node(_value(each), "", 0)
        return names.node(_value(text), "", 0)
    except (KeyError, TypeError, RecursionError, UnicodeError) as error:
        raise ValueError(f"no Avro schema: {text[:200]}") from error


def _value(text: str) -> object:
    try:
        return load_json(text.encode(), bytes_max=_TEXT_MAX, depth_max=_JSON_DEEP)
    except ValueError:
        if text.strip() in PRIMITIVES:  # files of old tools have a bare name
            return text.strip()
        raise


@dataclass(slots=True)
class _Names:
    """The named types that were seen so far."""

    known: dict[str, Node] = field(default_factory=dict)
    parts: int = 0
    """How many parts the schema has, as far as it was read."""

    def _count(self, more: int = 1) -> None:
        self.parts += more
        if self.parts > PARTS_MAX:
            raise ValueError(f"the schema has more than {PARTS_MAX} parts")

    def node(self, value: object, space: str, depth: int) -> Node:
        if depth > _DEEP:
            raise ValueError("the schema is nested too deeply")
        self._count()
        if isinstance(value, str):
            return self._named(value, space)
        if isinstance(value, list):
            return Union(tuple(self.node(each, space, depth + 1) for each in value))
        if not isinstance(value, dict):
            raise TypeError(value)
        kind = value["type"]
        if kind in ("record", "error"):
            return self._record(value, space, depth)
        if kind == "enum":
            name = _full(value, space)
            self._count(len(value["symbols"]))
            return self._new(name, Enum(name, tuple(map(_text, value["symbols"]))))
        if kind == "fixed":
            name, size = _full(value, space), value["size"]
            if not isinstance(size, int) or not 0 <= size <= _SIZE_MAX:
                raise TypeError(size)
            return self._new(name, Fixed(name, size, _logical(value)))
        if kind == "array":
            return Array(self.node(value["items"], space, depth + 1))
        if kind == "map":
            return Map(self.node(value["values"], space, depth + 1))
        if isinstance(kind, str) and kind in PRIMITIVES:
            return Primitive(kind, _logical(value))
        return self.node(kind, space, depth + 1)

    def _named(self, name: str, space: str) -> Node:
        if name in PRIMITIVES:
            return Primitive(name)
        full = name if "." in name or not space else f"{space}.{name}"
        found = self.known.get(full) or self.known.get(name)
        if found is None:
            raise ValueError(f"the schema does not define the type {name[:200]!r}")
        return found

    def _new(self, name: str, node: Node) -> Node:
        if name in self.known:
            raise ValueError(f"the schema defines the type {name[:200]!r} twice")
        self.known[name] = node
        return node

    def _record(self, value: dict[str, object], space: str, depth: int) -> Node:
        name = _full(value, space)
        record = Record(name)
        self._new(name, record)
        fields = value["fields"]
        if not isinstance(fields, list):
            raise TypeError(fields)
        inner = name.rpartition(".")[0]
        for each in fields:
            record.fields.append((_text(each["name"]), self.node(each["type"], inner, depth + 1)))
        names = [each for each, _ in record.fields]
        if len(set(names)) < len(names):
            raise ValueError(f"record {name[:200]!r} has a field twice")
        return record


def parts_of(node: Node) -> int:
    """Return how many parts a schema has, each type once, however often it is used.

    >>> parts_of(Array(Primitive("long")))
    2
    """
    seen: dict[int, Node] = {}
    left, count = [node], 0
    while left:
        each = left.pop()
        if id(each) in seen:
            continue
        seen[id(each)] = each
        count += 1
        left += children(each)
    return count


def children(node: Node) -> Iterable[Node]:
    """Return the types that a type is made of."""
    if isinstance(node, Record):
        return [inner for _, inner in node.fields]
    if isinstance(node, Union):
        return node.branches
    if isinstance(node, Array):
        return [node.items]
    return [node.entry] if isinstance(node, Map) else []


def _full(value: dict[str, object], space: str) -> str:
    name = _text(value["name"])
    if "." in name:
        return name
    space = _text(value.get("namespace", space) or "")
    return f"{space}.{name}" if space else name


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _logical(value: dict[str, object]) -> Logical:
    """Return the logical type; one with attributes that make no sense is none, as Avro says."""
    name = value.get("logicalType", "")
    if not isinstance(name, str):
        return Logical()
    if name != "decimal":
        return Logical(name)
    digits, scale = value.get("precision"), value.get("scale", 0)
    if not (isinstance(digits, int) and isinstance(scale, int)):
        return Logical()
    return Logical(name, digits, scale) if 0 <= scale <= digits <= _DIGITS_MAX else Logical()
