"""How many Kafka records a second become rows, for each format of values.

    python benchmarks/kafka_decode.py [--records 10000] [--rounds 20]

Batches of flights: nine fields, 190 bytes in JSON, 56 in Avro. JSON is measured against Arrow's
reader on the same bytes, joined beforehand: the ratio is what finding bad records, checking values
and dates as texts cost. Avro is measured against fastavro, which makes an object a record, and
Arrow's rows of them. Times are of the processor, the least of rounds in which all take turns; so
a busy machine changes the ratios little. Results: benchmarks/results/kafka_decode.json.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import time
from collections.abc import Callable
from pathlib import Path

import fastavro
import pyarrow as pa
import pyarrow.json as pj

from plait.kafka.records.avro.decoder import AvroDecoder
from plait.kafka.records.avro.schema import parse_schema
from plait.kafka.records.formats import RawDecoder
from plait.kafka.records.json_values import JsonDecoder

RESULTS = Path(__file__).with_name("results") / "kafka_decode.json"
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("flight", pa.string()),
        ("origin", pa.string()),
        ("dest", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("delay", pa.int32()),
        ("distance", pa.float64()),
        ("carrier", pa.string()),
        ("day", pa.date32()),
    ]
)
AVRO: dict[str, object] = {
    "type": "record",
    "name": "Flight",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "flight", "type": ["null", "string"]},
        {"name": "origin", "type": "string"},
        {"name": "dest", "type": "string"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "delay", "type": ["null", "int"]},
        {"name": "distance", "type": "double"},
        {"name": "carrier", "type": "string"},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    ],
}


def flights(count: int) -> pa.Table:
    """Make flights."""
    chance = random.Random(11)
    day_us, first = 86_400_000_000, 20_454
    rows = {
        "id": range(count),
        "flight": [f"UA{chance.randrange(10_000):04}" for _ in range(count)],
        "origin": [chance.choice(("EWR", "JFK", "LGA")) for _ in range(count)],
        "dest": [chance.choice(("ORD", "LAX", "SFO")) for _ in range(count)],
        "at": [first * day_us + chance.randrange(30 * day_us) for _ in range(count)],
        "delay": [chance.randrange(-20, 300) for _ in range(count)],
        "distance": [chance.random() * 3_000 for _ in range(count)],
        "carrier": ["United Air Lines"] * count,
        "day": [first + chance.randrange(30) for _ in range(count)],
    }
    return pa.table([pa.array(rows[each.name], each.type) for each in SCHEMA], schema=SCHEMA)


def as_json(table: pa.Table) -> list[bytes]:
    """Write rows as producers do."""
    rows = table.to_pylist()
    return [json.dumps(row, default=lambda each: each.isoformat()).encode() for row in rows]


def as_avro(table: pa.Table) -> list[bytes]:
    """Write rows without a header."""
    schema, values = fastavro.parse_schema(AVRO), []
    for row in table.to_pylist():
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, row)
        values.append(out.getvalue())
    return values


def arrow_reader(values: list[bytes]) -> Callable[[], object]:
    """Return what Arrow alone does with JSON lines, which has no dates as texts."""
    at = SCHEMA.get_field_index("day")
    schema = SCHEMA.set(at, pa.field("day", pa.string()))
    options = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    body = b"\n".join(values)
    read = pj.ReadOptions(block_size=len(body) + 1, use_threads=False)
    return lambda: pj.read_json(pa.BufferReader(body), read_options=read, parse_options=options)


def fastavro_rows(values: list[bytes]) -> Callable[[], object]:
    """Return what fastavro and Arrow do with records."""
    schema, read = fastavro.parse_schema(AVRO), fastavro.schemaless_reader

    def decode() -> object:
        rows = [read(io.BytesIO(value), schema, None) for value in values]
        return pa.Table.from_pylist(rows, schema=SCHEMA)

    return decode


def measure(runs: dict[str, Callable[[], object]], rounds: int) -> dict[str, dict[str, float]]:
    """Return the least time of each, of the processor and of the clock, in turns."""
    least = {name: {"cpu_s": 1e9, "wall_s": 1e9} for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            cpu, wall = time.process_time(), time.perf_counter()
            run()
            took = {"cpu_s": time.process_time() - cpu, "wall_s": time.perf_counter() - wall}
            least[name] = {key: min(least[name][key], took[key]) for key in took}
    return least


def main() -> None:
    """Measure, print and keep the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=20)
    given = parser.parse_args()
    table = flights(given.records)
    jsons, avros = as_json(table), as_avro(table)
    json_decoder = JsonDecoder(SCHEMA)
    avro_decoder = AvroDecoder(SCHEMA, parse_schema(json.dumps(AVRO)))
    raw_decoder = RawDecoder(pa.schema([("value", pa.binary())]), "value")
    for decoder, values in ((json_decoder, jsons), (avro_decoder, avros)):
        if not decoder.decode(values).rows.equals(table):
            message = "the rows did not come back"
            raise SystemExit(message)
    runs: dict[str, Callable[[], object]] = {
        "arrow reader": arrow_reader(jsons),
        "json": lambda: json_decoder.decode(jsons),
        "avro": lambda: avro_decoder.decode(avros),
        "fastavro": fastavro_rows(avros),
        "raw": lambda: raw_decoder.decode(jsons),
    }
    least = measure(runs, given.rounds)
    found = {
        "records": given.records,
        "json_bytes": sum(map(len, jsons)) / given.records,
        "avro_bytes": sum(map(len, avros)) / given.records,
        "records_per_s": {
            name: round(given.records / each["cpu_s"]) for name, each in least.items()
        },
        "json_per_arrow_reader": round(least["arrow reader"]["cpu_s"] / least["json"]["cpu_s"], 2),
        "avro_per_arrow_reader": round(least["arrow reader"]["cpu_s"] / least["avro"]["cpu_s"], 2),
        "avro_per_fastavro": round(least["fastavro"]["cpu_s"] / least["avro"]["cpu_s"], 2),
        "raw_per_arrow_reader": round(least["arrow reader"]["cpu_s"] / least["raw"]["cpu_s"], 2),
    }
    print(json.dumps(found, indent=2))
    RESULTS.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
