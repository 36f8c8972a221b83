"""Random changes of columns and members, and a table in plain Python that numbers them."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random  # noqa: TID251 - of a seed, for lives that repeat
from typing import Any, TypeAlias

import pyarrow as pa

from plait import Table
from plait.expr import parse_ddl

Row = dict[Any, Any]
"""Values by the numbers of columns; what is shown to readers, by their names."""
KINDS = ("int", "bigint", "float", "double", "string")
WIDER = {"int": "bigint", "float": "double"}
NAMES = "abcdef"
_MAP, _LIST = "map", "array"
Step: TypeAlias = "Callable[[Book, str, Part], None]"


@dataclass
class Part:
    """A column or a part of one: a plain kind, or what is inside of it."""

    number: int
    """Never that of another part, and never anew: this is what a value belongs to."""
    kind: str
    members: dict[str, Part] = field(default_factory=dict)
    """Of a struct, in order."""
    item: Part | None = None
    """Of an array, or the values of a map."""
    default: object = None
    """Of a column, in rows that were written without it."""

    @property
    def ddl(self) -> str:
        if self.kind == "struct":
            inside = (f"`{name}`: {part.ddl}" for name, part in self.members.items())
            return f"struct<{', '.join(inside)}>"
        if self.item is not None:
            key = "string, " if self.kind == _MAP else ""
            return f"{self.kind}<{key}{self.item.ddl}>"
        return self.kind

    def shown(self, value: Any) -> Any:
        """Give a value as a reader that knows this schema shows it."""
        if value is None:
            return None
        if self.kind == "struct":
            return {
                n: part.shown(value.get(part.number, part.default))
                for n, part in self.members.items()
            }
        if self.item is None:
            return value
        if self.kind == _MAP:
            return [(key, self.item.shown(each)) for key, each in value]
        return [self.item.shown(each) for each in value]

    def structs(self, path: str) -> Iterator[tuple[str, Part]]:
        """Give the structs in this, with their paths."""
        if self.kind == "struct":
            yield path, self
        for name, part in self.members.items():
            yield from part.structs(under(path, name))
        if self.item is not None:
            yield from self.item.structs(f"{path}.{'value' if self.kind == _MAP else 'element'}")


def under(path: str, name: str) -> str:
    """Return the path of a member of a struct; the root of all columns has none."""
    return f"{path}.{name}" if path else name


@dataclass
class Book:
    """The table in plain Python, at every version, beside the real one."""

    table: Table
    random: Random
    root: Part
    """The struct whose members are the columns."""
    numbers: Iterator[int]
    rows: dict[int, Row] = field(default_factory=dict)
    """By id, the values by the numbers of columns and members."""
    versions: dict[int, tuple[Part, dict[int, Row]]] = field(default_factory=dict)
    steps: list[str] = field(default_factory=list)
    restored: int = 0
    """The version of the newest restore; what a rewrite dropped before is back in no change."""

    @classmethod
    def begin(cls, place: str, seed: int, **how: Any) -> Book:
        """Create a table of every nested shape."""
        numbers, random = itertools.count(1), Random(seed)

        def part(kind: str, item: Part | None = None, **members: Part) -> Part:
            return Part(next(numbers), kind, members, item)

        def struct(**more: Part) -> Part:
            return part("struct", a=part("int"), b=part("string"), g=part("float"), **more)

        columns = {
            "s": struct(n=struct()),
            "l": part(_LIST, struct(n=struct())),
            "m": part(_MAP, struct()),
            "ll": part(_LIST, part(_LIST, struct())),
            "ml": part(_MAP, part(_LIST, struct())),
            "sl": part("struct", l=part(_LIST, struct()), m=part(_MAP, struct())),
        }
        root = Part(0, "struct", columns)
        table = Table.create(place, ddl_of(root), record_key=["id"], **how)
        return cls(table, random, root, numbers)

    # --- rows ---------------------------------------------------------------------------------

    def note(self) -> None:
        """Remember what the newest version has."""
        self.versions[self.table.version] = copy.deepcopy((self.root, self.rows))

    def value(self, part: Part) -> Any:
        """Make a value, as the book keeps it."""
        draw = self.random
        if draw.random() < 0.15:
            return None
        if part.kind == "struct":
            return {each.number: self.value(each) for each in part.members.values()}
        if part.item is not None:
            count = draw.randrange(3)
            if part.kind == _MAP:
                return [(f"k{at}", self.value(part.item)) for at in range(count)]
            return [self.value(part.item) for _ in range(count)]
        if part.kind == "string":
            return draw.choice(("", "x", "it's", "0"))
        choices = (0, -1, 7) if part.kind in ("int", "bigint") else (0.0, -0.0, 0.5, float("inf"))
        return draw.choice(choices)

    def data(self, rows: dict[int, Row]) -> pa.Table:
        """Give rows in Arrow, in the columns of now."""
        listed = expected((self.root, rows))
        return pa.Table.from_pylist(listed, schema=pa.schema(self.table.schema))

    def row(self) -> Row:
        """Make a row."""
        return {each.number: self.value(each) for each in self.root.members.values()}

    def write(self) -> None:
        """Upsert some rows, and then perhaps delete some."""
        keys = self.random.sample(range(12), 5)
        rows = {key: self.row() for key in keys}
        self.table.upsert(self.data(rows))
        self.rows.update(rows)
        self.note()
        if self.random.random() < 0.6:
            gone = self.random.sample(sorted(self.rows), 2)
            self.table.delete(where=f"id IN ({gone[0]}, {gone[1]})")
            self.rows = {key: row for key, row in self.rows.items() if key not in gone}
            self.note()

    # --- changes of columns -------------------------------------------------------------------

    def change(self, *steps: Step) -> None:
        """Change the columns, or a struct somewhere, in one of some ways or in any."""
        root, *inner = self.root.structs("")
        path, struct = root if self.random.random() < 0.4 else self.random.choice(inner or [root])
        step = self.random.choice(steps or STEPS)
        step(self, path, struct)
        self.steps.append(f"{step.__name__} {path}")
        self.note()

    def compact(self) -> None:
        self.table.maintenance.compact(full=True)
        self.note()

    def restore(self) -> None:
        """Go back to a version with its columns."""
        version = self.random.choice(list(self.versions))
        self.table.versions.restore(version=version)
        self.root, self.rows = copy.deepcopy(self.versions[version])
        self.restored = self.table.version
        self.note()

    def added(self, struct: Part, name: str) -> Part:
        made = Part(next(self.numbers), self.random.choice(KINDS))
        struct.members[name] = made
        return made

    def free(self, struct: Part) -> str:
        return next(name for name in (*NAMES, *"uvwxyz") if name not in struct.members)


def add(book: Book, path: str, struct: Part) -> None:
    name = book.free(struct)
    made = book.added(struct, name)
    if not path and made.kind != "string":
        made.default = book.random.choice((None, 7))
    book.table.alter.columns().add(under(path, name), made.kind, default=made.default).commit()


def drop(book: Book, path: str, struct: Part) -> None:
    if len(struct.members) == 1:
        return add(book, path, struct)
    name = book.random.choice(list(struct.members))
    del struct.members[name]
    book.table.alter.columns().drop(under(path, name)).commit()
    return None


def drop_and_add(book: Book, path: str, struct: Part) -> None:
    """A namesake of a dropped member has none of its values."""
    add(book, path, struct)
    name = book.random.choice(list(struct.members))
    kind = struct.members.pop(name).kind
    book.table.alter.columns().drop(under(path, name)).commit()
    made = book.added(struct, name)
    made.kind = kind if kind in KINDS else made.kind
    book.table.alter.columns().add(under(path, name), made.kind).commit()


def rename(book: Book, path: str, struct: Part) -> None:
    old, new = book.random.choice(list(struct.members)), book.free(struct)
    struct.members = {new if n == old else n: part for n, part in struct.members.items()}
    book.table.alter.columns().rename(under(path, old), new).commit()


def swap_names(book: Book, path: str, struct: Part) -> None:
    if len(struct.members) == 1:
        return add(book, path, struct)
    one, other = book.random.sample(list(struct.members), 2)
    names = {one: other, other: one}
    struct.members = {names.get(n, n): part for n, part in struct.members.items()}
    alter = (
        book.table.alter.columns()
        .rename(under(path, one), "between")
        .rename(under(path, other), one)
    )
    alter.rename(under(path, "between"), other).commit()
    return None


def move(book: Book, path: str, struct: Part) -> None:
    """The first goes to the end: a cast by place would shift the values."""
    if len(struct.members) == 1:
        return add(book, path, struct)
    first, *_, last = struct.members
    struct.members[first] = struct.members.pop(first)
    book.table.alter.columns().move(under(path, first), after=last).commit()
    return None


def widen(book: Book, path: str, struct: Part) -> None:
    narrow = [name for name, part in struct.members.items() if part.kind in WIDER]
    if not narrow:
        return add(book, path, struct)
    name = book.random.choice(narrow)
    part = struct.members[name]
    part.kind = WIDER[part.kind]
    book.table.alter.columns().widen(under(path, name), part.kind).commit()
    return None


def two_writers(book: Book, path: str, struct: Part) -> None:
    """Two writers bring members along, one of them the same: it is one member."""
    both, mine, theirs = [name for name in "uvwxyz" if name not in struct.members][:3]
    rows: list[tuple[dict[int, Row], pa.Table]] = []
    kinds: dict[str, Part] = {}
    for at, own in enumerate((mine, theirs)):
        came = copy.deepcopy(book.root)
        (there,) = (part for where, part in came.structs("") if where == path)
        for name in (both, own):
            kinds.setdefault(name, Part(next(book.numbers), "bigint"))
            there.members[name] = kinds[name]
        key = 100 + 2 * len(book.steps) + at
        values = {key: {part.number: book.value(part) for part in came.members.values()}}
        shown = expected((came, values))
        rows.append((values, pa.Table.from_pylist(shown, schema=parse_ddl(ddl_of(came)))))
    first, second = (
        book.table.writer("insert", evolve="add", on_conflict="retry") for _ in range(2)
    )
    with first:
        first.write(rows[0][1])
        with second:
            second.write(rows[1][1])
    struct.members |= {name: kinds[name] for name in (both, theirs, mine)}
    for values, _ in rows:
        book.rows.update(values)


STEPS: tuple[Step, ...] = (
    add,
    drop,
    drop_and_add,
    rename,
    swap_names,
    move,
    widen,
    two_writers,
)


def ddl_of(root: Part) -> str:
    """Return the columns of a table, after the key."""
    return "id bigint, " + ", ".join(f"{name} {each.ddl}" for name, each in root.members.items())


def expected(version: tuple[Part, dict[int, Row]]) -> list[Row]:
    """Give the rows of a version, as a reader shows them."""
    root, rows = version
    return [{"id": key, **root.shown(row)} for key, row in sorted(rows.items())]


def found(rows: pa.Table) -> list[Row]:
    """Give what a reader found in the same form."""
    return sorted(rows.to_pylist(), key=lambda row: row["id"])


def played(place: str, seed: int, *, changes: int = 8) -> Book:
    """Play one random life of a table."""
    kind = ("cow", "mor")[seed % 2]
    book = Book.begin(place, seed, table_type=kind, buckets=1 + seed % 3)
    book.write()
    for _ in range(changes):
        book.change()
        then = book.random.choice((book.write, book.write, book.compact, book.restore, None))
        if then is not None:
            then()
    return book
