"""What a history is: a table, what stands in it, and what each client does. Plain data.

Everything prints as the Python that makes it, so that a failing history can be pasted as a test.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields

Row = tuple[int, str, int, int | None]
"""id, p, v, n: the record key, the partition, a value, and the ordering column."""
COLUMNS = ("id", "p", "v", "n")


def expires(row: Row) -> bool:
    """Tell whether a row has expired whenever it is written, by its id."""
    return row[0] % 3 == 1


WRITES = (
    "append",
    "insert",
    "skip",
    "upsert",
    "overwrite",
    "overwrite_where",
    "overwrite_partitions",
    "delete_keys",
    "delete_where",
    "update",
    "merge",
)
"""What one write can be; ``skip`` is an insert that skips keys that are there."""
CHANGE, AGAIN = "change", 2
"""An upsert that then removes the key of its first row; with more than two it adds that row again.

Histories of their own have it (``test_changes.py``): no draw of another moves by it.
"""
UNKEYED = (
    "append",
    "overwrite",
    "overwrite_where",
    "overwrite_partitions",
    "delete_where",
    "update",
)
"""Those that a table without a key has."""


class Shown:
    """Prints as the call that makes it, without what is the default."""

    __slots__ = ()

    def __repr__(self) -> str:
        parts = []
        for each in fields(self):  # type: ignore[arg-type]
            value = getattr(self, each.name)
            if each.default is MISSING:
                parts.append(repr(value))
            elif value != each.default:
                parts.append(f"{each.name}={value!r}")
        return f"{type(self).__name__}({', '.join(parts)})"


@dataclass(frozen=True, slots=True, repr=False)
class Shape(Shown):
    """How the table is defined."""

    keyed: bool = True
    table_type: str = "cow"
    policy: str = "key"
    isolation: str = "snapshot"
    partitioned: bool = False
    ordering: bool = False
    buckets: int = 1
    little: bool = False
    """Whether a clean keeps two versions only."""
    aged: bool = False
    """Whether each commit writes a checkpoint, and an archive keeps one decision only."""
    ordered: bool = False
    """Whether the table records an order of its rows."""
    told: bool = True
    """Whether decisions tell the bounds of files."""
    unique: bool = False
    """Whether a key names one row in all partitions."""
    published: bool = False
    """Whether each client publishes what it decides, for readers of Delta and of Iceberg."""

    @property
    def strict(self) -> bool:
        """Whether what was read counts too."""
        return self.isolation == "serializable"


@dataclass(frozen=True, slots=True, repr=False)
class Where(Shown):
    """A predicate: a column, a comparison, a literal."""

    column: str
    sign: str
    value: int | str

    @property
    def text(self) -> str:
        """Write it as SQL."""
        return f"{self.column} {self.sign} {self.value!r}"


@dataclass(frozen=True, slots=True, repr=False)
class Do(Shown):
    """One operation."""

    kind: str
    rows: tuple[Row, ...] = ()
    where: Where | None = None
    values: str = ""
    """For an update: a name of ``clauses.SETS``."""
    clauses: tuple[str, ...] = ()
    """For a merge: names of ``clauses.CLAUSES``."""
    placed: bool = False
    """For a delete by keys: whether the partition is named too."""
    derive: str = ""
    """How the rows follow from those that were read last: ``sum`` or ``bump``."""
    batches: int = 1


@dataclass(frozen=True, slots=True, repr=False)
class Look(Shown):
    """A scan inside of a transaction."""

    where: Where | None = None


@dataclass(frozen=True, slots=True, repr=False)
class Write(Shown):
    """One operation, committed by itself."""

    do: Do
    read: Where | bool = False
    """What was read before: a predicate, or everything (True)."""
    named: str = ""
    """How the read is named: ``scan``, ``version`` or ``snapshot``; ``older``: an older version."""
    retry: bool = False
    commit_id: str | None = None
    aborts: bool = False
    """Whether the caller fails before the commit."""
    epoch: int | None = None
    """Of the stream that all clients write: ``append`` or ``upsert``, with nothing read."""


@dataclass(frozen=True, slots=True, repr=False)
class Block(Shown):
    """Several operations and reads, committed at once."""

    parts: tuple[Do | Look, ...]
    retry: bool = False
    commit_id: str | None = None
    aborts: bool = False


@dataclass(frozen=True, slots=True, repr=False)
class Read(Shown):
    """A scan, of the newest version or of one some versions before."""

    where: Where | None = None
    back: int = 0


@dataclass(frozen=True, slots=True, repr=False)
class Serve(Shown):
    """A service: a name of ``serve.SERVICES``, or what undoes commits and lets them be redone.

    That is ``restore``, ``undo`` (of the newest commit), ``saved`` (a restore of the savepoint) and
    ``replay``.
    """

    kind: str
    back: int = 1
    """For a restore: so many versions before the newest."""
    replay: bool = False
    """For what undoes commits: whether they may be applied again."""


Turn = Write | Block | Read | Serve


@dataclass(frozen=True, slots=True, repr=False)
class History(Shown):
    """Clients that work at once on one table."""

    shape: Shape
    clients: tuple[tuple[Turn, ...], ...]
    start: tuple[Do, ...] = ()
    """What was committed before they came, one after the other."""
    events: tuple[str, ...] = ()
    """What may happen to calls; see the scheduler."""

    @property
    def names(self) -> tuple[str, ...]:
        """Name the clients."""
        return tuple("abcde"[: len(self.clients)])

    @property
    def turns(self) -> int:
        """Count what they do."""
        return sum(map(len, self.clients))

    def serves(self, kind: str) -> bool:
        """Tell whether some client calls a service."""
        return any(isinstance(t, Serve) and t.kind == kind for turns in self.clients for t in turns)


def name_of(turn: Turn) -> str:
    """Name what a turn is, for counting.

    >>> name_of(Write(Do("upsert"), read=True, named="scan")), name_of(Read())
    ('upsert', 'read')
    """
    if isinstance(turn, Write):
        return turn.do.kind
    if isinstance(turn, Serve):
        return turn.kind
    return type(turn).__name__.lower()
