"""What clients do, on the real table; and what they were told."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from plait import CommitResult, Table
from plait.errors import TableError
from plait.model.words import OnConflict
from plait.read.scan import Scan
from plait.testing.faults import SimulatedCrashError
from plait.txn.table_handle import TableHandle
from tests.differential.clauses import SETS, clauses_of
from tests.differential.model import Saw, derived, in_order
from tests.differential.program import (
    AGAIN,
    CHANGE,
    COLUMNS,
    Block,
    Do,
    Look,
    Read,
    Row,
    Serve,
    Turn,
    Where,
    Write,
    expires,
)
from tests.differential.serve import STREAM, Served, serve
from tests.interleave.publishing import client_of

SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.string()), ("v", pa.int64()), ("n", pa.int64())])
TIMED = SCHEMA.append(pa.field("t", pa.date32()))
"""As the tables have it: no history looks at ``t``; it says which rows have expired."""
OVER, FAR = dt.date(2001, 1, 1), dt.date(2901, 1, 1)


class AbortedError(Exception):
    """A caller that fails in the middle of its work."""


@dataclass(slots=True)
class Told:
    """One turn of a client, and all that it heard."""

    client: str
    turn: Turn
    began: int
    """The newest version when it began."""
    first: int = 0
    """The number of its first nonce."""
    steps: list[Do | Saw] = field(default_factory=list)
    """What it did and saw, in order, with the rows as they were given."""
    base: int | None = None
    """The version that a transaction rested on."""
    result: CommitResult | None = None
    served: Served | None = None
    """What a restore or a replay told."""
    error: BaseException | None = None
    ended: int = -1
    """The newest version when it ended; -1: it never did."""
    last: int = 0

    @property
    def read_at(self) -> int | None:
        """The version that was read by name, if one was."""
        if isinstance(self.turn, Block):
            return self.base if self.saw else None
        return self.saw[0].version if self.saw and isinstance(self.turn, Write) else None

    @property
    def saw(self) -> list[Saw]:
        """What it saw, in order."""
        return [step for step in self.steps if isinstance(step, Saw)]

    @property
    def did(self) -> list[Do]:
        """What it did, in order."""
        return [step for step in self.steps if isinstance(step, Do)]


@dataclass(slots=True)
class Ledger:
    """What all clients of one history have in common."""

    head: int = 0
    told: list[Told] = field(default_factory=list)


def client(name: str, turns: Sequence[Turn], ledger: Ledger) -> Callable[[TableHandle], object]:
    """Give an actor that does one turn after the other, whatever each of them comes to."""

    def act(handle: TableHandle) -> None:
        for turn in turns:
            told = Told(name, turn, ledger.head, first=count_of(handle.ports.ids.nonce()))
            ledger.told.append(told)
            try:
                _do(client_of(handle), turn, told)
            except (TableError, AbortedError) as error:
                told.error = error
            except SimulatedCrashError as error:
                told.error = error
                raise
            told.ended = ledger.head
            told.last = count_of(handle.ports.ids.nonce())

    return act


def count_of(nonce: str) -> int:
    """Give the place of a nonce among those of its client."""
    return int.from_bytes(bytes.fromhex(nonce[2:]))


def table_of(rows: Sequence[Row], columns: Sequence[str] = COLUMNS) -> pa.Table:
    """Give rows as Arrow data."""
    picked = [COLUMNS.index(name) for name in columns]
    schema = pa.schema([SCHEMA.field(name) for name in columns])
    found = pa.table(
        [pa.array([r[at] for r in rows], SCHEMA.field(at).type) for at in picked], schema=schema
    )
    if tuple(columns) != COLUMNS:
        return found
    days = [OVER if expires(row) else FAR for row in rows]
    return found.append_column("t", pa.array(days, pa.date32()))


def rows_of(scan: Scan) -> tuple[Row, ...]:
    """Read a scan, in a fixed order."""
    data = scan.to_arrow().to_pydict()
    return in_order(zip(*(data[name] for name in COLUMNS), strict=True))


def _do(table: Table, turn: Turn, told: Told) -> None:
    if isinstance(turn, Read):
        at = None if not turn.back else max(0, table.version - turn.back)
        _look(table.scan(where=_text(turn.where), version=at), turn.where, told)
    elif isinstance(turn, Serve):
        told.served = serve(table, turn)
    elif isinstance(turn, Block):
        _block(table, turn, told)
    else:
        _write(table, turn, told)


def _text(where: Where | None) -> str | None:
    return None if where is None else where.text


def _look(scan: Scan, where: Where | None, told: Told) -> None:
    told.steps.append(Saw(where, rows_of(scan), scan.version))


def _write(table: Table, turn: Write, told: Told) -> None:
    do, read_from = turn.do, None
    if turn.epoch is not None:
        told.steps.append(do)
        told.result = _epoch(table, do, turn.epoch, turn.retry)
        return
    if turn.read is not False:
        where = None if turn.read is True else turn.read
        version = max(0, table.version - 1) if turn.named == "older" else None
        scan = table.scan(where=_text(where), version=version)
        _look(scan, where, told)
        do = derived(do, told.saw[-1].rows)
        names: dict[str, Any] = {
            "scan": scan,
            "older": scan.version,
            "version": scan.version,
            "snapshot": table.snapshot(version=scan.version) if turn.named == "snapshot" else None,
        }
        read_from = names[turn.named]
    told.steps.append(do)
    asked: dict[str, Any] = {"read_from": read_from, "commit_id": turn.commit_id}
    if turn.retry:
        asked["on_conflict"] = "retry"
    if do.kind == CHANGE:
        told.result = _change(table, do, asked, aborts=turn.aborts)
    elif turn.aborts or do.batches > 1 or (do.kind == "append" and turn.retry):
        told.result = _by_writer(table, do, asked, aborts=turn.aborts)
    else:
        told.result = apply(table, do, asked)


def _epoch(table: Table, do: Do, number: int, retry: bool) -> CommitResult:
    stream = table.stream(STREAM)
    token = stream.token(number, str(number) if number else "", str(number + 1))
    on_conflict: OnConflict = "retry" if retry else "raise"
    with stream.writer_of(token, do.kind, on_conflict=on_conflict, on_duplicate="raise") as writer:
        writer.write(table_of(do.rows))
    return writer.result


def _by_writer(table: Table, do: Do, asked: dict[str, Any], *, aborts: bool) -> CommitResult:
    kind = {"skip": "insert", "overwrite_where": "overwrite", "overwrite_partitions": "overwrite"}
    if do.kind == "skip":
        asked["on_duplicate"] = "skip"
    elif do.kind == "overwrite_where":
        asked["where"] = _text(do.where)
    elif do.kind == "overwrite_partitions":
        asked["partitions"] = "dynamic"
    operation: Any = kind.get(do.kind, do.kind)
    with table.writer(operation, **asked) as writer:
        size = -(-len(do.rows) // do.batches)
        for at in range(0, len(do.rows), max(1, size)):
            writer.write(table_of(do.rows[at : at + size]))
        if aborts:
            raise AbortedError
    return writer.result


def _change(table: Table, do: Do, asked: dict[str, Any], *, aborts: bool) -> CommitResult:
    with table.writer("upsert", **asked) as writer:
        writer.write(table_of(do.rows))
        writer.remove(table_of(do.rows[:1]))
        if len(do.rows) > AGAIN:
            writer.write(table_of(do.rows[:1]))
        if aborts:
            raise AbortedError
    return writer.result


def apply(target: Any, do: Do, asked: dict[str, Any]) -> Any:
    """Do one operation on a table or in a transaction."""
    kind, where = do.kind, _text(do.where)
    if kind in ("append", "insert", "upsert"):
        return getattr(target, kind)(table_of(do.rows), **asked)
    if kind == "skip":
        return target.insert(table_of(do.rows), on_duplicate="skip", **asked)
    if kind == "overwrite":
        return target.overwrite(table_of(do.rows), **asked)
    if kind == "overwrite_where":
        return target.overwrite(table_of(do.rows), where=where, **asked)
    if kind == "overwrite_partitions":
        return target.overwrite(table_of(do.rows), partitions="dynamic", **asked)
    if kind == "delete_keys":
        names = ("id", "p") if do.placed else ("id",)
        return target.delete(keys=table_of(do.rows, names), **asked)
    if kind == "delete_where":
        return target.delete(where=where or "true", **asked)
    if kind == "update":
        return target.update(SETS[do.values][0], where=where, **asked)
    return target.merge(table_of(do.rows), **clauses_of(do.clauses), **asked)


def _block(table: Table, turn: Block, told: Told) -> None:
    on_conflict: OnConflict = "retry" if turn.retry else "raise"
    with ExitStack() as stack:
        tx = stack.enter_context(
            table.transaction(commit_id=turn.commit_id, on_conflict=on_conflict)
        )
        told.base = tx.version
        read: tuple[Row, ...] = ()
        for part in turn.parts:
            if isinstance(part, Look):
                read = rows_of(tx.scan(where=_text(part.where)))
                told.steps.append(Saw(part.where, read))
            else:
                do = derived(part, read)
                told.steps.append(do)
                apply(tx, do, {})
        if turn.aborts:
            raise AbortedError
    told.result = tx.result if told.did else None
