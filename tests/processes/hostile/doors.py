"""One process that tries every door of tables that a stranger made, under an audit hook.

``python -m tests.processes.hostile.doors``, with JSON on standard input: ``outside``, ``roots``,
``allow``, ``doors`` (none: all) and ``turns``: of so many doors each table has one tried, and the
next table the next one. It answers with what the hook noted, by table and door.
"""

from __future__ import annotations

import functools
import io
import json
import logging
import sys
from collections.abc import Callable

import kazoo.client  # noqa: F401 - so that imports of libraries are over when the hook begins
import pyarrow as pa
import pyiceberg.io.pyarrow  # noqa: F401 - the same
import sqlalchemy.dialects.postgresql
import sqlalchemy.dialects.sqlite  # noqa: F401 - the same

import plait.replicate
from plait import Table, TableError
from plait.cli.main import main
from plait.cli.render import Streams
from tests.support.audit import Audit

Door = Callable[[Table], object]
NEW = pa.table({"id": [9], "day": ["x"], "v": ["new"]})

READS: dict[str, Door] = {
    "scan": lambda t: t.scan().to_arrow(),
    "scan of a version": lambda t: t.scan(version=1).to_arrow(),
    "get": lambda t: t.get([1]),
    "changes": lambda t: t.changes(0).to_arrow(),
    "describe": lambda t: t.inspect.describe(),
    "files": lambda t: t.inspect.files(),
    "history": lambda t: t.inspect.history(),
    "writers": lambda t: t.inspect.writers(),
    "readers": lambda t: t.inspect.readers(),
    "verify": lambda t: t.check.verify(data=True),
    "status of the sinks": plait.replicate.status,
    "plan of a repair": lambda t: t.check.repair(dry_run=True),
    "foreign files": lambda t: t.check.foreign(),
}
WRITES: dict[str, Door] = {
    "locks": lambda t: t.inspect.locks(),
    "append": lambda t: t.append(NEW),
    "upsert": lambda t: t.upsert(NEW),
    "update": lambda t: t.update({"v": "'u'"}, where="id = 1"),
    "delete": lambda t: t.delete(where="id = 2"),
    "overwrite": lambda t: t.overwrite(NEW, where="id = 1"),
    "options": lambda t: t.alter.set({"lock.wait": "1s"}),
    "savepoint": lambda t: t.versions.savepoint("hostile"),
    "compact": lambda t: t.maintenance.compact(),
    "cluster": lambda t: t.maintenance.cluster(t.maintenance.cluster(order_by="v", dry_run=True)),
    "clean": lambda t: t.maintenance.clean(),
    "optimize": lambda t: t.maintenance.optimize(),
    "rollback": lambda t: t.maintenance.rollback(),
    "restore": lambda t: t.versions.restore(version=1),
}


def _transaction(t: Table) -> None:
    with t.transaction() as tx:
        tx.delete(where="id = 1")
        tx.append(NEW)


def _stream(t: Table) -> None:
    with t.stream("hostile").writer(after=None, end="1") as writer:
        writer.write(NEW)


DOORS = {**READS, **WRITES, "transaction": _transaction, "stream": _stream}
COMMANDS = {
    "command repush": ("repush",),
    "command replicas": ("replicas", "status"),
    "command repair": ("replicas", "repair", "--sink", "eu", "--yes"),
    "command services": ("services", "run", "--once"),
    "command undo": ("repush", "--undo"),
    "command cancel": ("repush", "--cancel"),
}


def _run(root: str, command: tuple[str, ...], allow: list[str]) -> None:
    streams = Streams(io.StringIO(), io.StringIO(), io.StringIO())
    split = 2 if command[0] in ("replicas", "services") else 1
    told = [word for address in allow for word in ("--allow", address)]
    main([*command[:split], root, *command[split:], *told], streams)


def serve() -> None:
    """Try every door of every table."""
    order = json.load(sys.stdin)
    audit, allow = Audit(order["outside"]), order["allow"]
    audit.install()
    logging.getLogger("plait").setLevel(logging.CRITICAL)
    answers: list[dict[str, object]] = []

    def attempt(root: str, name: str, run: Callable[[], object]) -> bool:
        audit.found, outcome = [], "done"
        try:
            with audit.watch():
                run()
        except TableError as error:
            outcome = error.code
        except BaseException as error:  # noqa: BLE001 - what a door may not do
            outcome = f"foreign: {type(error).__name__}: {error}"
        answers.append({"root": root, "door": name, "outcome": outcome, "found": audit.found})
        return outcome == "done"

    def attempt_all(number: int, root: str) -> None:
        opened: list[Table] = []
        attempt(root, "open", lambda: opened.append(Table.open(root, allow=allow)))
        every = order["doors"] or (*DOORS, *COMMANDS)
        for name in every[number % order["turns"] :: order["turns"]]:
            if name in COMMANDS:
                attempt(root, name, functools.partial(_run, root, COMMANDS[name], allow))
            elif opened:
                attempt(root, name, functools.partial(DOORS[name], opened[0]))

    for number, root in enumerate(order["roots"]):
        attempt_all(number, root)
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    serve()
