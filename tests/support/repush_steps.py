"""A repush that is disturbed at each of its phases in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa

from plait import Table
from plait.repush import RepushReport
from plait.testing import Fault, FaultStore, SimulatedCrashError, open_wrapped
from plait.timeline import paths
from tests.support import build
from tests.support.build import LITTLE, again, uri_of

SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.string()), ("v", pa.int64())])
PHASES_MAX = 200
Content = dict[int, tuple[str, int]]
rows = partial(build.rows, schema=SCHEMA, p="x", v=0)


def make(**how: object) -> Table:
    """Make a table of the keys 0 to 9, in three commits."""
    table = build.make(SCHEMA, append=rows(range(5)), **{"buckets": 2, "properties": LITTLE, **how})
    table.append(rows(range(5, 10), p="y"))
    table.delete(where="id = 3")
    table.append(rows(3, v=1))
    return table


def content(table: Table, version: int | None = None) -> list[tuple[int, str, int]]:
    """Return the rows, in order, with those that come twice."""
    found = table.scan(version=version).to_arrow().to_pylist()
    return sorted((row["id"], row["p"], row["v"]) for row in found)


FIRST = sorted([(i, "x" if i < 5 else "y", int(i == 3)) for i in range(10)])
"""What ``make`` leaves."""


@dataclass
class AtNth:
    """An observer that does something once, at the nth phase."""

    nth: int
    other: Table
    act: Callable[[Table, str], object]
    seen: list[str] = field(default_factory=list)

    def phase(self, name: str, **facts: object) -> None:
        self.seen.append(name)
        if len(self.seen) == self.nth:
            self.act(self.other, name)


def disturbed(
    make_table: Callable[[], Table], act: Callable[[Table, str], object], *, step: int = 1
) -> Iterator[tuple[Table, Table, int]]:
    """Yield a new table with a client that is disturbed some phases later each time.

    The caller repushes with the client. It ends when the client met fewer phases than that.
    """
    for nth in range(1, PHASES_MAX, step):
        table = make_table()
        client, observer = again(table), AtNth(nth, again(table), act)
        client._opened.handle = replace(
            client._handle, ports=replace(client._handle.ports, observer=observer)
        )
        yield table, client, nth
        if len(observer.seen) < nth:
            return
    message = "the repush has no end"
    raise AssertionError(message)


def killed(table: Table, nth: int, run: Callable[[Table], object]) -> bool:
    """Kill an operation before its nth storage call; return whether it came so far."""
    with suppress(SimulatedCrashError):
        dying, _ = open_wrapped(
            uri_of(table),
            lambda s: FaultStore(s, [Fault("crash_before", nth=nth)]),
        )
        run(dying)
        return False
    return True


def is_laid_out(table: Table, report: RepushReport | None = None, *, buckets: int = 3) -> bool:
    """Tell whether the repush is over and was swapped in."""
    found = again(table)._handle.cache.refresh().table
    if report is not None and report.version is not None:
        assert found.former
    return found.repush is None and found.spec.layout.buckets.count == buckets


def nothing_is_left(table: Table) -> None:
    """See that a clean leaves the files of the newest version and no other."""
    table = again(table)
    store = table._handle.store
    store.delete([info.path for info in store.list(paths.LEASES)])  # the dead may have read
    table.maintenance.rollback()
    table.maintenance.clean()
    table.maintenance.clean()
    assert not table.check.verify(data=True).problems
    assert not table.inspect.timeline().pending
    live = set(table.inspect.files()["path"].to_pylist())
    data = {i.path for i in table._handle.store.list("") if not i.path.startswith(".meta/")}
    assert live <= data
    assert not {path for path in data - live if ".dv." not in path and ".keys." not in path}
