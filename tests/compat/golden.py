"""One golden table while it is made: its place, its clock, and what its versions show."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from plait import Table
from plait.definition.create import define_table
from plait.model.consent import Consent
from plait.storage.memory import MemoryStore
from plait.testing import ManualBackground, SeqIds, SimClock, sim_ports
from plait.txn.table_decisions import create_table
from plait.txn.table_handle import open_handle
from tests.compat.rows import plain
from tests.support.memory import forget

START_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z
Row = dict[str, object]


class Golden:
    """One table, and what its versions show."""

    def __init__(
        self,
        name: str,
        schema: str,
        *,
        lock: str = "process",
        allow: tuple[str, ...] = (),
        **definition: object,
    ):
        self.name = name
        self.consent = Consent.of(allow)
        self.uri = f"memory://golden-{name}"
        forget(self.uri)
        self.clock = SimClock(START_MS)
        self.ids = SeqIds(f"{sum(name.encode()):04x}")
        self.background = ManualBackground()
        self.store = MemoryStore(self.uri, clock=self.clock)
        defined = define_table(schema, lock=lock, **definition)  # type: ignore[arg-type]
        self.rows: dict[int, list[Row]] = {0: []}
        self.left: tuple[object, ...] = ()
        """What is open while the files are copied, and must not be ended by a finaliser."""
        create_table(self.store, self._ports(None), defined)
        self.table = self.client()

    def _ports(self, observer: object):
        return sim_ports(
            clock=self.clock, ids=self.ids, background=self.background, observer=observer
        )

    def client(self, observer: object = None) -> Table:
        """Open the table as another job would."""
        return Table(open_handle(self.store, self._ports(observer), self.consent))

    def arrow(self, rows: Iterable[Row]) -> pa.Table:
        """Return rows with the table's types."""
        return pa.Table.from_pylist(list(rows), schema=self.table.schema)

    def shows(self, rows: Iterable[Row]) -> None:
        """Note what the newest version shows; versions since the last note show what it did."""
        newest = self.table.version
        before = self.rows[max(self.rows)]
        for version in range(max(self.rows) + 1, newest):
            self.rows[version] = before
        self.rows[newest] = [dict(row) for row in rows]
        self.clock.advance(1)

    def wait_for(self, instant: object) -> None:
        """Wait until the background flush of a writer has said where it writes."""
        while not any(f"{instant}.inflight" in info.path for info in self.store.list("")):
            threading.Event().wait(0.01)

    def save(self, folder: Path) -> None:
        """Write the files of the table, and its rows by version."""
        place = folder / self.name
        shutil.rmtree(place, ignore_errors=True)
        for info in self.store.list(""):
            path = place / info.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self.store.find(info.path) or b"")
        names = self.table.schema.names
        lines, last = [], None
        for version, rows in sorted(self.rows.items()):
            # Rows of other columns than the last ones come in the order that those have.
            values = [
                [plain(row[name]) for name in (names if set(row) == set(names) else row)]
                for row in rows
            ]
            text = "null" if values == last else _json(values)  # null: as the version before
            lines.append(f'"{version}":{text}')
            last = values
        shown = ",\n".join(lines)
        text = f'{{"columns":{_json(names)},\n"versions":{{\n{shown}}}}}\n'
        (folder / f"{self.name}.json").write_text(text, encoding="utf-8")
        forget(self.uri)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def by(rows: Iterable[Row], *names: str) -> dict[tuple[object, ...], Row]:
    """Return rows by key."""
    return {tuple(row[name] for name in names): row for row in rows}
