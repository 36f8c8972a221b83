"""Two files of a table change places: each is whole, and neither is what its name says.

The table is made so that files of one kind have one size, and footers that tell nothing apart: what
differs between two commits is a float, of which no footer has bounds. Everything that can stand in
a file of its own stands there.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from plait import Table
from plait.definition.create import define_table
from plait.errors import ConflictError, CorruptMetadataError, TableError
from plait.storage.memory import MemoryStore
from plait.testing import ManualBackground, SeqIds, SimClock, sim_ports
from plait.timeline import paths
from plait.txn.table_decisions import create_table
from plait.txn.table_handle import open_handle
from tests.fuzz.tables import small_thresholds
from tests.support.memory import forget

FOUND = ("data ", "manifests ", "timeline ", "archive ")
"""Kinds of which ``verify`` finds every exchange, also where no reader came by."""
SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.float64())])
ROWS = 6
Rows = dict[int, float]


def rows_of(rows: Rows) -> pa.Table:
    return pa.table([list(rows), [float(value) for value in rows.values()]], schema=SCHEMA)


@dataclass
class Exchanged:
    """A table, what its versions hold, and a writer that began in the middle."""

    table_type: str
    number: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    rows: Rows = field(default_factory=dict)
    at: dict[int, Rows] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.uri = f"memory://exchanged-{self.table_type}"
        forget(self.uri)
        self.clock, self.ids = SimClock(1_767_225_600_000), SeqIds("0e")
        self.background = ManualBackground()
        self.store = MemoryStore(self.uri, clock=self.clock)
        properties = {"checkpoint.interval": "4", "compact": "off", "archive.keep": "3"}
        defined = define_table(
            "id bigint, v double",
            lock="process",
            record_key=("id",),
            partition_by=("bucket(2, id)",),
            buckets=1,
            table_type=self.table_type,
            properties=properties,
        )
        create_table(self.store, self._ports(), defined)
        self.table = self.client()
        self._note()
        with small_thresholds():
            self._build()
        self.paths = [info.path for info in self.store.list("")]

    def _ports(self):
        return sim_ports(clock=self.clock, ids=self.ids, background=self.background)

    def client(self) -> Table:
        return Table(open_handle(self.store, self._ports()))

    def _note(self) -> None:
        version = self.table.version
        for missing in range(max(self.at, default=-1) + 1, version):
            self.at[missing] = dict(self.at[missing - 1])
        self.at[version] = dict(self.rows)
        self.clock.advance(1)

    def put(self, *ids: int) -> None:
        """Upsert keys with values of now."""
        came = {key: float(next(self.number)) for key in ids}
        self.table.upsert(rows_of(came))
        self.rows |= came
        self._note()

    def remove(self, key: int) -> None:
        """Delete a key."""
        self.table.delete(keys=rows_of({key: 0.0}).select(["id"]))
        self.rows.pop(key)
        self._note()

    def _build(self) -> None:
        first, second = range(ROWS), range(ROWS, 2 * ROWS)
        self.put(*first)
        self.put(*second)
        self.put(0, 2)
        self.put(1, 3)
        if self.table_type == "mor":
            self.table.index.create()
            self.put(6, 8)
            self.table.index.build()
            self.put(7, 9)
            self.table.index.build()
            self._note()
        # It rests on what the table is now, and is to meet all that comes.
        self.writer = self.client().writer("upsert")
        self.writer.__enter__()
        self.writer.write(rows_of({0: -1.0, 9: -1.0}))
        self.put(2, 4)
        self.put(3, 5)
        self.put(0, 1)
        self.put(8, 9)
        self.remove(4)
        self.remove(5)
        self.table.maintenance.compact(full=True)
        self._note()
        self.put(2, 4)
        self.put(3, 5)
        if self.table_type == "cow":
            self.table.maintenance.archive()
            self._note()
        self.table.layout.repush(buckets=2)
        self._note()
        self.put(2, 4)
        self.put(3, 5)

    # --- exchanges -------------------------------------------------------------------------

    def kinds(self) -> dict[str, list[str]]:
        """Group the files by what they are."""
        found: dict[str, list[str]] = {}
        for path in self.paths:
            found.setdefault(kind_of(path), []).append(path)
        return found

    def exchange(self, one: str, other: str, *, force: bool) -> None:
        """Let two files change places; ``force``: each gets the size that its new name had."""
        first, second = self.store.find(one) or b"", self.store.find(other) or b""
        if force:
            first, second = fitted(first, len(second)), fitted(second, len(first))
        self._place(one, second)
        self._place(other, first)

    def _place(self, path: str, body: bytes) -> None:
        """Put bytes there, with the time that the file had."""
        with self.store._space.mutex:
            _, modified_ms = self.store._space.files[path]
            self.store._space.files[path] = (body, modified_ms)

    # --- what may not happen ---------------------------------------------------------------

    def problems(self, one: str, other: str) -> Iterator[str]:
        """Read in every way, verify and write; yield what is silently wrong."""
        names, refused = {one, other}, False

        def tried(what: str, act: Callable[[], object], right: object) -> str | None:
            nonlocal refused
            try:
                found = act()
            except TableError as error:
                refused = True
                told = f"{error} {error.facts}"
                named = isinstance(error, CorruptMetadataError) and any(n in told for n in names)
                return None if named else f"{what}: unnamed {error!r}"
            except Exception as error:  # noqa: BLE001 - a foreign one is what is looked for
                return f"{what}: foreign {error!r}"
            return None if found == right else f"{what}: {found} for {right}"

        def said(*told: str | None) -> Iterator[str]:
            yield from filter(None, told)

        head = max(self.at)
        for version in sorted(self.at):
            yield from said(
                tried(f"scan {version}", lambda v=version: self._scan(v), self.at[version])
            )
        yield from said(tried("get", lambda: self._get(range(2 * ROWS)), self.at[head]))
        yield from said(tried("changes", self._changes, self.at[head]))
        found = refused or kind_of(one).startswith(FOUND)
        yield from self._verified(names, required=found)

    def _verified(self, names: set[str], *, required: bool) -> Iterator[str]:
        try:
            report = self.client().check.verify()
        except TableError as error:  # the table cannot be opened
            if not any(name in f"{error} {error.facts}" for name in names):
                yield f"verify raised {error!r}"
            return
        told = f"{report.problems} {report.notes}"
        if required and not any(name in told for name in names):
            yield f"verify found nothing: {told[:300]}"

    def _scan(self, version: int) -> Rows:
        return shown(self.client().scan(version=version).to_arrow())

    def _get(self, keys: range) -> Rows:
        return shown(self.client().get(list(keys)))

    def _changes(self) -> Rows:
        """Put the changes since the beginning together to what the newest version shows."""
        rows: Rows = {}
        came = self.client().changes(since=0).to_arrow().to_pylist()
        for row in sorted(came, key=lambda each: each["_commit_version"]):
            if row["_change_type"] in ("insert", "update_postimage"):
                rows[row["id"]] = row["v"]
            elif row["_change_type"] == "delete":
                rows.pop(row["id"], None)
        return rows

    def written_on(self, one: str, other: str) -> Iterator[str]:
        """End the old writer, and write anew; yield what is silently wrong."""
        expected = dict(self.at[max(self.at)])
        try:
            self.writer.__exit__(None, None, None)
        except (ConflictError, CorruptMetadataError):
            pass
        except TableError as error:
            if not any(name in f"{error} {error.facts}" for name in (one, other)):
                yield f"old writer: unnamed {error!r}"
        except Exception as error:  # noqa: BLE001 - a foreign one is what is looked for
            yield f"old writer: foreign {error!r}"
        else:
            yield "old writer: an update was lost"
            return
        try:
            self.client().upsert(rows_of({0: -7.0, 7: -7.0}))
            expected |= {0: -7.0, 7: -7.0}
        except TableError as error:
            if not any(name in f"{error} {error.facts}" for name in (one, other)):
                yield f"write: unnamed {error!r}"
        except Exception as error:  # noqa: BLE001 - a foreign one is what is looked for
            yield f"write: foreign {error!r}"
        try:
            found = shown(self.client().scan().to_arrow())
        except CorruptMetadataError:
            return
        if found != expected:
            yield f"after the write: {found} for {expected}"


def shown(rows: pa.Table) -> Rows:
    """Return rows by key."""
    return {row["id"]: row["v"] for row in rows.to_pylist()}


def fitted(body: bytes, size: int) -> bytes:
    """Cut bytes, or repeat their end, so that they have a size."""
    return body[:size] + body[-1:] * (size - len(body))


def kind_of(path: str) -> str:
    """Name the kind of a file by its path."""
    inner = path.split("/", 1)[1] if path.startswith("repush-") else path
    if not inner.startswith(f"{paths.META}/"):
        return "data " + path.rsplit(".", 2)[1]
    return inner.split("/")[1] + " " + inner.rsplit(".", 1)[-1].rsplit("-", 1)[-1][:12]


def pairs(table: Exchanged, kind: str, *, force: bool) -> list[tuple[str, str]]:
    """Return the pairs of a kind whose exchange changes something; of one size, unless forced."""

    def body(path: str) -> bytes:
        return table.store.find(path) or b""

    return [
        (one, other)
        for one, other in itertools.combinations(table.kinds()[kind], 2)
        if body(one) != body(other) and (force or len(body(one)) == len(body(other)))
    ]


def judge(table_type: str, one: str, other: str, *, force: bool) -> list[str]:
    """Make the table, exchange two files, and return what is wrong."""
    table = Exchanged(table_type)
    table.exchange(one, other, force=force)
    return [*table.problems(one, other), *table.written_on(one, other)]


def drawn(seed: int, *, each: int) -> Iterator[tuple[str, str, bool, tuple[str, str]]]:
    """Draw some exchanges of every kind: the table's type, the kind, whether forced, the files."""
    draw = random.Random(seed)
    for table_type in ("mor", "cow"):
        table = Exchanged(table_type)
        for kind in sorted(table.kinds()):
            for force in (False, True):
                known = pairs(table, kind, force=force)
                for pair in draw.sample(known, min(each, len(known))):
                    yield table_type, kind, force, pair


def run(seed: int, *, each: int) -> Iterator[str]:
    """Judge exchanges of every kind; yield what is wrong, and at the end the counts."""
    counts: Counter[str] = Counter()
    for table_type, kind, force, (one, other) in drawn(seed, each=each):
        counts[kind] += 1
        for problem in judge(table_type, one, other, force=force):
            yield f"{table_type}: {one} for {other}: {problem}"
    kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(counts.items()))
    print(f"{counts.total()} exchanges of two files: {kinds}", flush=True)
