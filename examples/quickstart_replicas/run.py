"""The run: a table and two regions; one region dies in the middle of a write and comes back."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

import pyarrow as pa
import pyarrow.compute as pc

from examples.quickstart_kafka.events import SCHEMA
from plait import ReplicationError, Table
from plait.cli.exits import CheckFailedError
from plait.cli.main import main
from plait.cli.render import Streams
from plait.replicate import Replicas, Retries, TableSink, repair, status

REGIONS: Final = ("us", "eu")
_DEAD: Final = "eu"
_DIES_IN: Final = 4
_BACK_IN: Final = 9
_NOT_IN_STEP: Final = 8
"""The exit code of ``tablectl replicas status`` if a sink is not in step."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run found."""

    flights: int
    rows: int
    failed: str
    """What the write that met the dead region said of each sink."""
    behind: int
    """Commits that the region lacked when it came back."""
    different: int
    """Rows that had to be changed there."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run: a table in a directory, and two regions beside it."""

    directory: Path
    flights: pa.Table
    say: Callable[[str], None]
    batch: int = 5_000
    """Rows of a batch; each is a commit in each region."""

    def execute(self) -> Outcome:
        """Write the flights month by month, and remove the cancelled ones."""
        table = Table.create(str(self.directory / "flights"), SCHEMA, record_key=["id"], buckets=4)
        for region in REGIONS:
            Table.create(str(self._region(region)), SCHEMA, record_key=["id"], buckets=4)
        failed = ""
        for month, flights in self._months():
            both = not _DIES_IN <= month < _BACK_IN
            if month == _DIES_IN:
                failed = self._write_while_a_region_dies(table, flights)
            if month == _BACK_IN:
                self._come_back()
            regions = REGIONS if both else ("us",)
            self._write(table, flights, regions)
            self.say(f"month {month}: {flights.num_rows:,} flights to {' and '.join(regions)}")
        behind = next(len(each.behind) for each in status(table) if each.sink == _DEAD)
        found = self._repair()
        return Outcome(self.flights.num_rows, table.scan().count(), failed, behind, found)

    def _write(self, table: Table, flights: pa.Table, regions: Sequence[str]) -> None:
        """Upsert the flights that flew, and delete the cancelled ones, which were announced."""
        with table.writer("upsert", replicas=self._replicas(regions)) as writer:
            writer.write(flights)
        cancelled = flights.filter(pc.is_null(flights["dep_delay"])).select(["id"])
        with table.writer("delete", replicas=self._replicas(regions)) as writer:
            writer.write(cancelled)

    def _write_while_a_region_dies(self, table: Table, flights: pa.Table) -> str:
        """Lose a region after half of the rows; return what the error says of each sink."""
        half = flights.num_rows // 2
        self.say(f"month {_DIES_IN}: the region {_DEAD} dies in the middle of the write")
        try:
            with table.writer("upsert", replicas=self._replicas(REGIONS)) as writer:
                writer.write(flights.slice(0, half))
                self._die()
                writer.write(flights.slice(half))
        except ReplicationError as error:
            outcomes = cast("list[dict[str, str]]", error.facts["outcomes"])
            told = ", ".join(f"{each['sink']} {each['state']}" for each in outcomes)
            self.say(f"the write failed, and nothing was committed: {told}")
            return told
        message = "a write was committed although a region was dead"
        raise CheckFailedError(message)

    def _die(self) -> None:
        """Put a file where the region's directory was: every call to it fails."""
        self._region(_DEAD).rename(self.directory / "unreachable")
        self._region(_DEAD).touch()

    def _come_back(self) -> None:
        self._region(_DEAD).unlink()
        (self.directory / "unreachable").rename(self._region(_DEAD))
        self.say(f"the region {_DEAD} is back")

    def _repair(self) -> int:
        """Do what an operator would do; return how many rows of the region were wrong."""
        table, dead = self.directory / "flights", self._region(_DEAD)
        self._tablectl(_NOT_IN_STEP, "replicas", "status", table)
        self._tablectl(_NOT_IN_STEP, "compare", table, dead, "--limit", 3)
        found = repair(Table.open(str(table)), TableSink(_DEAD, str(dead)), dry_run=True)
        for region in REGIONS:  # the write that failed had sent rows to the other one too
            sink = f"{region}={self._region(region)}"
            self._tablectl(0, "replicas", "repair", table, "--sink", sink, "--yes")
        self._tablectl(0, "replicas", "status", table)
        for region in REGIONS:
            self._tablectl(0, "compare", table, self._region(region))
        return found.missing + found.different + found.extra

    def _tablectl(self, code: int, *words: object) -> None:
        """Run a command and show it; raise CheckFailedError if its exit code is another."""
        line = [str(word) for word in words]
        self.say(f"$ tablectl {' '.join(line)}")
        out, err = io.StringIO(), io.StringIO()
        found = main(line, Streams(io.StringIO(), out, err))
        for text in out.getvalue().splitlines():
            self.say(f"  {text}")
        if found != code:
            message = f"tablectl {line[0]} ended with {found}, not {code}"
            raise CheckFailedError(message, hint=err.getvalue()[-500:])

    def _months(self) -> Iterator[tuple[int, pa.Table]]:
        """Return the flights of each month that has any."""
        months = pc.month(self.flights["scheduled"])
        for month in sorted(pc.unique(months).to_pylist()):
            yield month, self.flights.filter(pc.equal(months, month))

    def _replicas(self, regions: Sequence[str]) -> Replicas:
        sinks = [TableSink(region, str(self._region(region))) for region in regions]
        retries = Retries(attempts=3, pause_s=0.05, pause_s_max=0.2)
        return Replicas(sinks, batch_size=self.batch, retries=retries)

    def _region(self, name: str) -> Path:
        return self.directory / name
