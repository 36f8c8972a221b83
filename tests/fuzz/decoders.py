"""Hostile records to the decoders of Avro and JSON: rows or bad records, within a bound of work.

Each case makes a schema, whose types may hold each other in many ways, and values: written as the
schema says, with counts and lengths at their bounds, cut, or of any bytes. A decoder must return a
row or a reason for each, after a number of calls that the bytes of the values bound, and hold no
more memory than a multiple of them.
"""

from __future__ import annotations

import argparse
import collections
import json
import random
import sys
import tracemalloc
from collections.abc import Callable, Iterator

import pyarrow as pa

from plait.kafka.records.avro.decoder import AvroDecoder
from plait.kafka.records.avro.schema import Node, parse_schema
from plait.kafka.records.decode import Decoder
from plait.kafka.records.json_values import JsonDecoder
from tests.support.steps import OutOfStepsError, at_most

STEPS, STEPS_BYTE, STEPS_PART = 200_000, 1_000, 300
"""Calls of Python and C that records may cost: so many, and so many for each of their bytes and for
each part of a schema. A step of the budget is a hundred calls at most."""
MEMORY, MEMORY_BYTE = 4 << 20, 300
"""Bytes of memory that they may cost, in the same way."""
COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("s", pa.string()),
        ("l", pa.list_(pa.int64())),
        ("ll", pa.list_(pa.list_(pa.int64()))),
        ("st", pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))])),
        ("m", pa.map_(pa.string(), pa.int64())),
        ("mm", pa.map_(pa.string(), pa.map_(pa.string(), pa.string()))),
    ]
)
PLAIN = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
NUMBERS = (-(2**63), -(2**40), -9_999, -2, -1, 0, 0, 1, 1, 2, 3, 63, 9_999, 10_001, 2**31, 2**62)


class Schemas:
    """Makes schemas of Avro, among them some whose values have no bytes, or no end."""

    def __init__(self, draw: random.Random) -> None:
        self.draw, self.names = draw, list[str]()

    def record(self) -> dict[str, object]:
        """Make the schema of a record that has some of the columns, and other fields."""
        names = [*self.draw.sample(COLUMNS.names, self.draw.randrange(1, 5)), "x", "y"]
        self.names = ["Top"]
        fields = [{"name": name, "type": self.column(name)} for name in names]
        return {"type": "record", "name": "Top", "fields": fields}

    def column(self, name: str) -> object:
        """Make a type for a column, mostly one that it takes."""
        if name not in COLUMNS.names or self.draw.random() < 0.1:
            return self.node(4)
        return self.fitting(COLUMNS.field(name).type)

    def fitting(self, kind: pa.DataType) -> object:
        """Make a type that a column takes; parts of it may be null, or the column's alone."""
        types, draw = pa.types, self.draw
        if draw.random() < 0.2:
            return [self.fitting(kind), "null"]
        if types.is_list(kind):
            return {"type": "array", "items": draw.choice(["null", self.fitting(kind.value_type)])}
        if types.is_map(kind):
            return {"type": "map", "values": self.fitting(kind.item_type)}
        if types.is_struct(kind):
            name = f"N{len(self.names)}"
            self.names.append(name)
            fields = [{"name": each.name, "type": self.fitting(each.type)} for each in kind.fields]
            return {"type": "record", "name": name, "fields": [
                *fields, {"name": "more", "type": self.node(3)},
            ]}  # fmt: skip
        return draw.choice(
            ["null", "int", "long"] if types.is_integer(kind) else ["string", "bytes"]
        )

    def node(self, depth: int) -> object:
        draw = self.draw
        kind = draw.randrange(12) if depth else 0
        if kind < 4:
            return draw.choice(PLAIN)
        if kind == 4:
            return draw.choice(self.names)
        if kind in (5, 6):
            return {"type": draw.choice(["array"]), "items": self.node(depth - 1)}
        if kind == 7:
            return {"type": "map", "values": self.node(depth - 1)}
        if kind == 8:
            return [self.node(0), *(self.node(depth - 1) for _ in range(draw.randrange(3)))]
        name = f"N{len(self.names)}"
        if kind == 9:
            self.names.append(name)
            size = draw.choice([0, 1, 16, 1 << 30])
            return {"type": "fixed", "name": name, "size": size}
        if kind == 10:
            return self.bomb(draw.randrange(2, 40), name)
        self.names.append(name)
        fields = [{"name": each, "type": self.node(depth - 1)} for each in "ab"]
        return {"type": "record", "name": name, "fields": fields}

    def bomb(self, levels: int, name: str) -> object:
        """Make records of two records each, and so on; at the end there is nothing, or a byte."""
        end = self.draw.choice(["null", "null", "boolean"])
        found: object = {"type": "record", "name": f"{name}_0",
            "fields": [{"name": "x", "type": end}]}  # fmt: skip
        for level in range(1, levels):
            found = {"type": "record", "name": f"{name}_{level}", "fields": [
                {"name": "a", "type": found}, {"name": "b", "type": f"{name}_{level - 1}"},
            ]}  # fmt: skip
        self.names.append(f"{name}_{levels - 1}")
        return found


class Values:
    """Writes values that a schema may have, up to some size; of those without an end, a part."""

    def __init__(self, draw: random.Random, schema: object) -> None:
        self.draw, self.known = draw, dict[str, object]()
        self.out, self.left, self.deep = bytearray(), 300, 0
        self._learn(schema)

    def _learn(self, node: object) -> None:
        if isinstance(node, list):
            for each in node:
                self._learn(each)
        elif isinstance(node, dict):
            if "name" in node:
                self.known[str(node["name"])] = node
            fields = node.get("fields", [])
            assert isinstance(fields, list)
            for each in (node.get("items"), node.get("values"), *(f["type"] for f in fields)):
                self._learn(each)

    def write(self, node: object) -> None:
        """Write a value of a type; nothing where there are enough, or too many in each other."""
        self.left -= 1
        if self.left < 0 or self.deep > 100:
            return
        self.deep += 1
        self._write(node)
        self.deep -= 1

    def _write(self, node: object) -> None:
        draw = self.draw
        if isinstance(node, str) and node in self.known:
            node = self.known[node]
        if isinstance(node, list):
            branch = draw.randrange(len(node))
            self.out += long(branch)
            self.write(node[branch])
        elif isinstance(node, str):
            self._plain(node)
        elif isinstance(node, dict) and node["type"] == "record":
            for each in node["fields"]:
                self.write(each["type"])
        elif isinstance(node, dict) and node["type"] == "fixed":
            self.out += bytes(min(node["size"], 40))
        elif isinstance(node, dict):
            count = draw.choice([0, 0, 1, 2, 5, draw.choice(NUMBERS)])
            self.out += long(count)
            for _ in range(min(count, 200)):
                if node["type"] == "map":
                    self.out += long(1) + bytes([97 + draw.randrange(26)])
                self.write(node.get("items", node.get("values")))
            if count:
                self.out += long(0)

    def _plain(self, name: str) -> None:
        draw = self.draw
        if name in ("int", "long"):
            self.out += long(draw.choice(NUMBERS))
        elif name in ("bytes", "string"):
            length = draw.choice([0, 1, 5, draw.choice(NUMBERS)])
            self.out += long(length) + b"a" * max(0, min(length, 50))
        else:
            sizes = {"null": 0, "boolean": 1, "float": 4, "double": 8}
            self.out += bytes(sizes[name])


def long(number: int) -> bytes:
    """Write a number as Avro does."""
    raw, out = ((number << 1) ^ (number >> 63)) & (2**64 - 1), bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    return bytes([*out, raw])


class One:
    """A registry of one schema."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def find(self, number: int) -> Node | str:
        """Return it, whatever it is called."""
        del number
        return self._node


class Fuzzing:
    """Cases, one after the other, each by its seed."""

    def __init__(self, seed: int) -> None:
        self.draw, self.seed = random.Random(seed), seed
        self.counts: collections.Counter[str] = collections.Counter()
        self.failures: list[str] = []
        self.most = self.memory = 0.0
        """The largest part of what is allowed that a case took, of calls and of memory."""

    def run(self, cases: int) -> None:
        """Run some cases of each decoder."""
        for _ in range(cases):
            self._avro()
            self._json()

    def _avro(self) -> None:
        schema = Schemas(self.draw).record()
        text = json.dumps(schema)
        try:
            decoder = AvroDecoder(COLUMNS, One(parse_schema(text)))
        except Exception as error:  # noqa: BLE001 - told by its name
            self.counts[f"avro schema: {type(error).__name__}"] += 1
            return
        values = [
            bytes([0, 0, 0, 0, 1]) + self._avro_value(schema)
            for _ in range(self.draw.choice([1, 1, 2, 7]))
        ]
        self._judge("avro", decoder, values, text.count('"type"'), text)

    def _avro_value(self, schema: object) -> bytes:
        draw = self.draw
        if draw.random() < 0.1:
            return draw.randbytes(draw.randrange(60))
        writing = Values(draw, schema)
        writing.write(schema)
        value = bytes(writing.out)
        if draw.random() < 0.2:
            value = value[: draw.randrange(len(value) + 1)]
        if draw.random() < 0.1:
            value = b"".join(long(draw.choice(NUMBERS)) for _ in range(draw.randrange(400)))
        return value

    def _json(self) -> None:
        values = [self._json_value() for _ in range(self.draw.choice([1, 1, 3, 20]))]
        self._judge("json", JsonDecoder(COLUMNS), values, 1, "")

    def _json_value(self) -> bytes:
        draw, size = self.draw, self.draw.choice([1, 10, 3_000])
        parts = (
            b"[" * size, b"]" * size, b'{"a":' * size, b"}" * size, b"9" * size, b'"' * size,
            b'\\"' * size, b"\\" * size, b" " * size, b"1e" + b"9" * size, b"null", b"{}", b"[]",
            b'"\\ud800"', b"-", b"\xff", b",", b":", b'{"a":{"b":1}}', b'{"a":1,"a":2}', b"1",
            b'"x"', b"{" + b",".join(b'"k%d":1' % each for each in range(size)) + b"}",
        )  # fmt: skip
        names = draw.sample([*COLUMNS.names, "x", "y"], draw.randrange(4))
        members = (
            json.dumps(name).encode()
            + b":"
            + b"".join(draw.choices(parts, k=draw.choice([1, 1, 3])))
            for name in names
        )
        return b"{" + b",".join(members) + b"}"

    def _judge(
        self, name: str, decoder: Decoder, values: list[bytes], parts: int, schema: str
    ) -> None:
        size = sum(map(len, values))
        told = f"seed {self.seed}: {name} {size} bytes in {len(values)} {schema:.2000}"
        steps = len(values) * (STEPS + STEPS_PART * parts) + STEPS_BYTE * size
        try:
            peak = self._measured(lambda: decoder.decode(values), steps, len(values))
        except OutOfStepsError as error:
            self.failures.append(f"{error}: {told}")
        except Exception as error:  # noqa: BLE001 - it is what this looks for
            self.failures.append(f"{type(error).__name__}: {error}: {told}")
        else:
            bound = MEMORY + MEMORY_BYTE * size + 2_000 * parts * len(values)
            self.memory = max(self.memory, peak / bound)
            if peak > bound:
                self.failures.append(f"{peak:,} bytes of memory, {bound:,} are allowed: {told}")
            self.counts[f"{name}: decoded"] += 1

    def _measured(self, decode: Callable[[], object], steps: int, values: int) -> int:
        """Decode; return the peak of memory, and check that there is an answer for each value."""
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        with at_most(steps):
            found = decode()
        rows, bad = found.rows, found.bad  # type: ignore[attr-defined]
        assert rows.num_rows + len(bad) == values, (rows.num_rows, bad)
        self.counts["rows"] += rows.num_rows
        self.counts["bad records"] += len(bad)
        return int(tracemalloc.get_traced_memory()[1]) - before + int(rows.nbytes)


def fuzz(seed: int, cases: int) -> Fuzzing:
    """Run some cases of each decoder."""
    fuzzing = Fuzzing(seed)
    JsonDecoder(COLUMNS).decode([b"{}"])  # what is imported at the first use is no work of a record
    pa.array([1, None])  # pandas, where it is there
    tracemalloc.start()
    try:
        fuzzing.run(cases)
    finally:
        tracemalloc.stop()
    return fuzzing


def lines(fuzzing: Fuzzing) -> Iterator[str]:
    """Say what became of the cases."""
    yield from (f"{count:8,} {name}" for name, count in sorted(fuzzing.counts.items()))
    yield f"memory: at most {fuzzing.memory:.0%} of the bound"
    yield f"{len(fuzzing.failures)} failures"


def main() -> int:
    """Run some cases; give 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    wanted = parser.parse_args()
    fuzzing = fuzz(wanted.seed, wanted.cases)
    for line in (*fuzzing.failures[:50], *lines(fuzzing)):
        print(line)
    return 1 if fuzzing.failures else 0


if __name__ == "__main__":
    sys.exit(main())
