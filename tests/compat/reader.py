"""A second reader of Plait tables, written from docs/spec/format.md alone.

It imports nothing of Plait, so what it cannot read is an error of the specification or of Plait.
It favours plain code over speed, and refuses what it can: rows are dictionaries.

    Reader("/data/flights").rows(version=7)
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import stat
import struct
import zlib
from collections.abc import Iterator
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyroaring
import xxhash

from tests.compat.values import (
    arrow_field,
    bucket_of,
    field_id,
    field_value,
    fitting,
    key_hashes,
    text_of,
)

FEATURES = {
    "slots-1", "key-digests-1", "deletion-vectors-1", "reservations-1", "row-maps-1", "restores-1",
    "ttl-1", "archive-1", "repush-1", "bucket-by-1", "partition-fields-1", "defaults-1",
    "dropped-1", "writer-features-1",
}  # fmt: skip
_ADDED = [
    "path", "partition", "bucket", "kind", "rows", "bytes", "order", "schema_id", "footer",
    "stats",
]  # fmt: skip
_KEYS = ["partition", "bucket", "keys", "key_count", "key_inline", "key_path"]
SECTIONS = {
    "added": _ADDED, "masked": ["path", "rows", "inline", "dv_path", "dv_offset", "dv_bytes"],
    "touched": _KEYS, "lookups": _KEYS, "removed": ["path"], "garbage": ["path"],
    "moved": ["path", "group", "rows", "map_inline", "map_path", "map_offset", "map_bytes"],
    "placed": ["path", "group", "first", "rows"],
}  # fmt: skip
BINARY = {"inline", "key_inline", "map_inline"}
INSTANT = re.compile(r"\d{17}-[0-9a-f]{16}")
VERSION = re.compile(r"\d{20}")
Row = dict[str, Any]


class RefusedError(Exception):
    """The table is damaged, or uses what this reader does not know."""


def require(holds: object, message: str) -> None:
    """Refuse the table unless a condition holds."""
    if not holds:
        raise RefusedError(message)


class Reader:
    """A table directory, and everything that its decisions say."""

    def __init__(self, root: str, *, checkpoints: bool = True) -> None:
        """Load the newest checkpoint, unless told not to, and the decisions since."""
        self.root = root
        self.version, self.checksum = -1, ""
        self.final, self.raised = 0, []
        self.table: Row = {}
        self.added: dict[str, list[Row]] = {}
        self.removed: dict[str, list[int]] = {}
        self.masked: dict[str, list[Row]] = {}
        self.condemned: set[str] = set()
        self.commits: dict[int, Row] = {}
        self.streams: dict[str, Row] = {}
        self.reservations: list[Row] = []
        self.savepoints: dict[str, int] = {}
        self.touched: list[Row] = []
        self.archive: list[list[Any]] = []
        self.bodies: dict[int, bytes] = {}
        identity = parsed(self._read(".meta/table.json"), ".meta/table.json")
        require(identity.get("format") == 1, f"format {identity.get('format')}")
        require(re.fullmatch(r"[0-9a-f]{16,64}", str(identity.get("id"))), "no identity")
        if checkpoints:
            self._start()
        while (body := self._find(path := slot(self.version + 1))) is not None:
            self._apply(*unsealed(body or self._archived(self.version + 1), path))
        require(all(e[2] < self.version for e in self.archive), "the archive is ahead")
        later = [slot(self.version + 1 + 2**n) for n in range(10)]
        require(not any(map(self._find, later)), f"{path} is missing, and a later one is there")
        require(self.version >= 0, "there is no table")
        require("dropped" not in self.table["contract"], "the table is dropped")

    # --- files -----------------------------------------------------------------------------

    def _find(self, path: str) -> bytes | None:
        parts = path.split("/")
        outside = "\\" in path or "\0" in path or ":" in parts[0] or {"", ".", ".."} & {*parts}
        require(not outside, f"invalid path {path!r}")
        steps = [os.path.join(self.root, *parts[: n + 1]) for n in range(len(parts))]
        if not os.path.lexists(steps[-1]):
            return None
        plain = stat.S_ISREG(os.lstat(steps[-1]).st_mode) and not any(map(os.path.islink, steps))
        require(plain, f"{path} is no plain file")
        with open(steps[-1], "rb") as file:
            return file.read()

    def _read(self, path: str) -> bytes:
        body = self._find(path)
        require(body is not None, f"{path} is missing")
        return body or b""

    def _archived(self, version: int) -> bytes:
        """Return the decision of an empty slot from the archive."""
        folder = os.path.join(self.root, ".meta", "archive")
        names = os.listdir(folder) if os.path.isdir(folder) else []
        for name in names if version not in self.bodies else []:
            match = re.fullmatch(rf"(\d{{20}})-(\d{{20}})-{INSTANT.pattern}\.parquet", name)
            if match and int(match[1]) <= version <= int(match[2]):
                body = self._read(f".meta/archive/{name}")
                rows = pq.read_table(pa.BufferReader(body), page_checksum_verification=True)
                self.bodies = {row["version"]: row["body"] for row in rows.to_pylist()}
                whole = list(self.bodies) == list(range(int(match[1]), int(match[2]) + 1))
                require(whole, f"{name} leaves a gap")
        require(version in self.bodies, f"version {version} is empty, and not in the archive")
        return self.bodies[version]

    def check_archive(self) -> None:
        """Compare every file of the archive with what the newest decision about it says."""
        next_first = 0
        for path, first, last, size, sha256 in self.archive:
            rows = self._table(path, last - first + 1, sha256, inside=".meta/archive/")
            require(first == next_first, f"{path} leaves a gap")
            require(sum(len(row["body"]) for row in rows) == size, f"{path} has another size")
            for version, row in enumerate(rows, first):
                _, decision = unsealed(row["body"], path)
                require(decision["version"] == row["version"] == version, f"{path} is mixed up")
            next_first = last + 1

    def _table(self, path: str, rows: int, sha256: str, *, inside: str) -> list[Row]:
        body = self._read(path)
        require(path.startswith(inside), f"{path} is in another place")
        require(hashlib.sha256(body).hexdigest() == sha256, f"{path} has another checksum")
        table = pq.read_table(pa.BufferReader(body))
        require(table.num_rows == rows, f"{path} has {table.num_rows} rows, not {rows}")
        return table.to_pylist()

    def _check_footer(self, path: str, size: int, footer: int) -> None:
        body = self._read(path)
        tail = body[-8 - int.from_bytes(body[-8:-4], "little") :]
        require(len(body) == size, f"{path} has {len(body)} bytes, not {size}")
        require(xxhash.xxh64_intdigest(tail) == footer, f"{path} has another footer")
        source = pq.ParquetFile(pa.BufferReader(body), page_checksum_verification=True)
        groups = [source.read_row_group(group) for group in range(source.num_row_groups)]
        require(all(group.num_rows <= 4_096 for group in groups), f"{path} has larger groups")

    # --- state -----------------------------------------------------------------------------

    def _start(self) -> None:
        """Start from the newest checkpoint that is whole; a damaged one is passed over."""
        folder = os.path.join(self.root, ".meta", "checkpoints")
        names = os.listdir(folder) if os.path.isdir(folder) else []
        for name in sorted(filter(VERSION.fullmatch, names), reverse=True):
            path, events = f".meta/checkpoints/{name}/state.json", {}
            try:
                sealed = parsed(self._read(path), path)
                digest = hashlib.sha256(sealed["state"].encode()).hexdigest()
                require(digest == sealed["checksum"], f"{path} has another checksum")
                state = parsed(sealed["state"].encode(), path)
                require(state["version"] == int(name), f"{path} is of another version")
                known(state["features"])
                next_first = 0
                for part in state["parts"]:
                    require(part["first"] == next_first, f"{path} leaves a gap")
                    next_first = part["last"] + 1
                    for table, file, rows, size, footer, sha256 in part["files"]:
                        found = self._table(file, rows, sha256, inside=".meta/checkpoints/")
                        self._check_footer(file, size, footer)
                        names = [n for n in ("directory", "path", "version") if n in found[0]]
                        order = [[row[name] for name in names] for row in found]
                        require(order == sorted(order), f"{file} is not sorted")
                        events[table] = [*events.get(table, []), *found]
                require(next_first == state["version"] + 1, f"{path} leaves a gap")
            except (RefusedError, KeyError, TypeError, ValueError, OSError, pa.ArrowException):
                continue
            self._take(state, events)
            return

    def _take(self, state: Row, events: dict[str, list[Row]]) -> None:
        self.version, self.checksum = state["version"], state["decision"]
        self.table, self.final, self.raised = state["table"], state["final"], state["raised"]
        self.streams = {token["application"]: token for token, *_ in state["streams"]}
        self.reservations = [reserved for _, reserved in state["reservations"]]
        self.archive = state.get("archived", [])
        lineage = state.get("lineage", {"savepoints": []})
        self.savepoints = {each["name"]: each["version"] for each in lineage["savepoints"]}
        for row in events.get("added", []):
            self.added.setdefault(row["path"], []).append(row)
        for row in events.get("removed", []):
            self.removed.setdefault(row["path"], []).append(row["version"])
        for row in events.get("masked", []):
            self.masked.setdefault(row["path"], []).append(row)
        self.condemned = {row["path"] for row in events.get("condemned", [])}
        self.commits = {row["version"]: row for row in events["commits"]}
        kept = ((p, rows) for p, rows in self.added.items() if p not in self.condemned)
        live = sum(len(rows) > len(self.removed.get(path, [])) for path, rows in kept)
        require(live == state["files"], f"{live} files are live, not {state['files']}")
        self._check_bounds()

    def _check_bounds(self) -> None:
        """Compare typed bounds with the JSON beside them."""
        for row in chain(*self.added.values()):
            told = json.loads(row["stats"] or "{}")
            for number in {name.split(".")[1] for name in row if name.startswith("lower.")}:
                typed = [row[f"{what}.{number}"] for what in ("lower", "upper", "nulls")]
                shown = told.get(number, [None, None, None])
                if any(isinstance(value, float) for value in typed):
                    shown = [None if text is None else float(text) for text in shown]
                else:
                    typed = [*map(text_of, typed[:2]), typed[2]]
                    typed = [*map(_as_told, typed, shown)]
                require(typed == shown, f"{row['path']} has other bounds of field {number}")

    def _apply(self, checksum: str, decision: Row) -> None:
        version, what = self.version + 1, f"decision {self.version + 1}"
        known(decision["features"])
        follows = decision["version"] == version and decision["previous"] == self.checksum
        require(follows, f"{what} does not continue the one before")
        require(INSTANT.fullmatch(decision["instant"]), f"{what} is of no instant")
        before = self.commits[version - 1]["completed_ms"] if version else -1
        require(decision["completed_ms"] > before, f"{what} was completed too early")
        require(not set(decision["changes"]) - set(SECTIONS), f"{what} has unknown sections")
        changes = {
            name: self._section(decision["changes"].get(name, {}), name) for name in SECTIONS
        }
        self.table = decision.get("table", self.table)
        for row in changes["added"]:
            times = len(self.removed.get(row["path"], [])) if decision.get("restored") else 0
            once = len(self.added.get(row["path"], [])) == times
            require(once, f"{row['path']} is added twice")
            self.added.setdefault(row["path"], []).append({**row, "version": version})
        for row in changes["removed"]:
            self.removed.setdefault(row["path"], []).append(version)
        for row in changes["masked"]:
            self.masked.setdefault(row["path"], []).append({**row, "version": version})
        touched = [*changes["touched"], *changes["lookups"]]
        self.touched += [{**row, "version": version} for row in touched]
        if cleaned := decision.get("cleaned"):
            self._clean(cleaned, version)
            self.condemned |= {path for path, _ in cleaned["condemned"]}
        for each in decision.get("replay", {"applications": []})["applications"]:
            self.streams.pop(each["application"], None)
            self.streams |= {each["application"]: each["token"]} if each["token"] else {}
        self.streams |= {token["application"]: token for token in decision.get("tokens", [])}
        if savepoint := decision.get("savepoint"):
            self.savepoints.pop(savepoint["name"], None)
            if not savepoint["drop"]:
                self.savepoints[savepoint["name"]] = savepoint["version"]
        self.archive = decision.get("archived", self.archive)
        ended = [decision, *decision.get("rolled_back", [])]
        nonces = {each["instant"][-16:] for each in ended}
        kept = [each for each in self.reservations if each["instant"][-16:] not in nonces]
        self.reservations = [*kept, *filter(None, [decision.get("reserved")])]
        self.commits[version] = decision
        self.version, self.checksum = version, checksum

    @property
    def horizon(self) -> int:
        """Return the oldest version that can be read."""
        return max((horizon for _, horizon in self.raised), default=self.final)

    def _clean(self, cleaned: Row, version: int) -> None:
        """Raise the horizon, or take back what the clean at ``undo`` and later ones raised."""
        require(cleaned["final"] <= cleaned["horizon"], f"decision {version} lets go of too much")
        self.final = max(self.final, cleaned["final"])
        before = self.horizon
        if "undo" in cleaned:
            self.raised = [each for each in self.raised if each[0] < cleaned["undo"]]
        elif cleaned["horizon"] > before:
            self.raised = [*self.raised, [version, cleaned["horizon"]]]
        self.raised = [each for each in self.raised if each[1] > self.final]
        agreed = "undo" not in cleaned or cleaned["horizon"] == self.horizon
        require(agreed, f"decision {version} undoes other cleans than it says")

    def _section(self, columns: Row, name: str) -> list[Row]:
        if "manifest" in columns:
            reference = (columns["manifest"], columns["rows"], columns["sha256"])
            return self._table(*reference, inside=".meta/manifests/")
        require(not set(columns) - set(SECTIONS[name]), f"section {name} has unknown columns")
        count = len(next(iter(columns.values()), []))
        require(all(len(c) == count for c in columns.values()), f"section {name} is cut off")
        rows = [{each: columns[each][n] for each in columns} for n in range(count)]
        for row in rows:
            given = [each for each in BINARY & {*row} if row[each]]
            row |= {each: base64.b64decode(row[each]) for each in given}
            row |= {each: None for each in SECTIONS[name] if each not in row}
        return rows

    def layout(self, version: int) -> Row:
        """Return the part of the definition that says where rows lie at a version."""
        former = self.table.get("former_layouts", [])
        ends = [each["until"] for each in former]
        require(ends == sorted(set(ends)), "former layouts are out of order")
        return next((each for each in former if version <= each["until"]), self.table)

    def live(self, version: int) -> list[tuple[Row, Row | None]]:
        """Return the files that are live at a version, each with its deletion vector."""
        saved = version in self.savepoints.values()
        readable = (self.horizon <= version or saved) and 0 <= version <= self.version
        require(readable, f"versions {self.horizon} to {self.version} can be read")
        found = []
        for path, rows in self.added.items():
            row = max(
                (row for row in rows if row["version"] <= version),
                key=lambda row: row["version"],
                default=None,
            )
            ends = [end for end in self.removed.get(path, []) if row and end > row["version"]]
            if row and path not in self.condemned and min(ends, default=version + 1) > version:
                masks = [mask for mask in self.masked.get(path, []) if mask["version"] <= version]
                found.append((row, max(masks, key=lambda mask: mask["version"], default=None)))
        return found

    # --- rows ------------------------------------------------------------------------------

    def rows(self, version: int | None = None) -> list[Row]:
        """Return the rows of a version, in no order; every file and every row is checked."""
        version = self.version if version is None else version
        rows: list[Row] = []
        seen: set[tuple[object, ...]] = set()
        layout = self.layout(version)
        same = self.commits[version].get("bucket_spec_id", layout["bucket_spec"]["id"])
        require(same == layout["bucket_spec"]["id"], f"version {version} has another layout")
        for file, mask in self.live(version):
            try:
                table = self._data(file, self.commits[version]["schema_id"])
                hidden = self._hidden(mask, file["rows"]) if mask and mask["rows"] else ()
            except (pa.ArrowException, OSError, ValueError, struct.error) as error:
                message = f"{file['path']} is damaged: {error}"
                raise RefusedError(message) from error
            self._check_places(table, file, layout)
            for position, row in enumerate(table.to_pylist()):
                if position not in hidden:
                    key = tuple(row[name] for name in layout["bucket_spec"]["key"])
                    require(not key or (file["partition"], *key) not in seen, f"{key} twice")
                    seen.add((file["partition"], *key))
                    rows.append(row)
        return rows

    def _data(self, file: Row, schema_id: int) -> pa.Table:
        """Read a data file with the columns of a schema."""
        path, body = file["path"], self._read(file["path"])
        require(len(body) == file["bytes"], f"{path} has {len(body)} bytes, not {file['bytes']}")
        footer = body[-8 - int.from_bytes(body[-8:-4], "little") :]
        require(xxhash.xxh64_intdigest(footer) == file["footer"], f"{path} has another footer")
        source = pq.ParquetFile(pa.BufferReader(body), page_checksum_verification=True)
        found = source.read()
        require(found.num_rows == file["rows"], f"{path} has {found.num_rows} rows")
        schemas = {schema["id"]: schema["fields"] for schema in self.table["schemas"]}
        written = {field["id"]: field["name"] for field in schemas[file["schema_id"]]}
        fields = schemas[schema_id]
        initial = {field["id"]: field["initial"] for field in fields if "initial" in field}
        return fitted(found, [arrow_field(field) for field in fields], written, initial)

    def _hidden(self, mask: Row, rows: int) -> pyroaring.BitMap64:
        """Read a deletion vector."""
        vector = mask["inline"]
        if vector is None:
            body, start = self._read(mask["dv_path"]), mask["dv_offset"]
            length = struct.unpack_from(">i", body, start)[0]
            vector = body[start + 4 : start + 4 + length]
            crc = struct.unpack_from(">I", body, start + 4 + length)[0]
            sound = body[0] == 1 and length == mask["dv_bytes"] and crc == zlib.crc32(vector)
            require(sound, f"{mask['dv_path']} is damaged")
            entry, name = body[start : start + 8 + length], mask["dv_path"].rpartition("/")[2]
            proof = xxhash.xxh64_intdigest(name.encode() + struct.pack("<Q", start) + entry)
            sealed = struct.unpack_from("<Q", body, start + 8 + length)[0] == proof
            require(sealed, f"{mask['dv_path']} has another entry at {start}")
        require(vector[:4] == b"\xd1\xd3\x39\x64", f"no deletion vector of {mask['path']}")
        hidden = pyroaring.BitMap64.deserialize(vector[4:])
        fits = len(hidden) == mask["rows"] and hidden.max() < rows
        require(fits, f"another deletion vector than that of {mask['path']}")
        return hidden

    def _check_places(self, table: pa.Table, file: Row, layout: Row) -> None:
        """Check that every row, hidden or not, lies in the partition and bucket of its file."""
        names, spec, path = layout["partition_by"], layout["bucket_spec"], file["path"]
        values = {
            tuple(text_of(field_value(name, row, table)) for name in names)
            for row in table.to_pylist()
        }
        for each in values:
            text = json.dumps(each, separators=(",", ":"), ensure_ascii=False)
            require(text == file["partition"], f"a row of partition {text} is in {path}")
        buckets = {-1}
        if spec["key"]:
            hashes = key_hashes(table, spec.get("by", spec["key"]))
            buckets = {bucket_of(each, spec["count"]) for each in hashes}
        require(buckets <= {file["bucket"]}, f"a row of another bucket is in {path}")

    def key_digests(self) -> Iterator[tuple[Row, list[int]]]:
        """Give the key hashes that decisions say they touched or looked up, checked."""
        for row in self.touched:
            body = row["key_inline"] or b""
            spec = self.layout(row["version"])["bucket_spec"]
            if row["keys"] == "sidecar":
                data = self._read(row["key_path"])
                head, body = data[:24], data[24:]
                proof = xxhash.xxh64_intdigest(row["key_path"].rpartition("/")[2].encode() + body)
                wanted = struct.pack("<QQ", row["key_count"], proof)
                require(head == b"PLTK\2\0\0\0" + wanted, f"{row['key_path']} is damaged")
            hashes = [value for (value,) in struct.iter_unpack("<Q", body)]
            rising = hashes == sorted(set(hashes))
            counted = row["keys"] not in ("inline", "sidecar") or len(hashes) == row["key_count"]
            places = set() if "by" in spec else {bucket_of(n, spec["count"]) for n in hashes}
            here = places <= {row["bucket"]}
            require(rising and counted and here, f"other keys than in bucket {row['bucket']}")
            yield row, hashes


# --- records -----------------------------------------------------------------------------------


def slot(version: int) -> str:
    """Return the path of a decision."""
    return f".meta/timeline/{version // 10_000:020d}/{version:020d}.json"


def parsed(body: bytes, path: str) -> Row:
    """Parse an object of JSON that names nothing twice."""

    def once(pairs: list[tuple[str, Any]]) -> Row:
        require(len(dict(pairs)) == len(pairs), f"{path} has a name twice")
        return dict(pairs)

    try:
        value = json.loads(body, object_pairs_hook=once)
    except ValueError as error:
        message = f"{path} is not JSON: {error}"
        raise RefusedError(message) from error
    require(isinstance(value, dict), f"{path} is no object")
    return value


def unsealed(body: bytes, path: str) -> tuple[str, Row]:
    """Check the seal of a decision; return its checksum and the decision."""
    match = re.fullmatch(rb'\{"checksum":"([0-9a-f]{64})",\n"decision":(.*)\}\n', body, re.DOTALL)
    sound = match and hashlib.sha256(match[2]).hexdigest() == match[1].decode()
    require(sound, f"{path} has another checksum")
    return match[1].decode(), parsed(match[2], path)


def known(features: list[str]) -> None:
    """Refuse a feature that this reader does not know."""
    unknown = sorted(set(features) - FEATURES)
    require(not unknown, f"unknown features {unknown}")


# --- types -------------------------------------------------------------------------------------


def _as_told(value: object, text: object) -> object:
    """Return a typed bound as the type wrote it that the column had before it was widened."""
    if not isinstance(value, str) or not isinstance(text, str):
        return value
    if "T" not in text:
        value = value.removesuffix("T00:00:00.000000")
    digits = len(text.partition(".")[2])
    return value[: len(text)] if digits and not value[len(text) :].strip("0") else value


def fitted(
    found: pa.Table, wanted: list[pa.Field], written: dict[int, str], initial: dict[int, str]
) -> pa.Table:
    """Return the columns of a schema, by field id, from those of a file."""
    names = {field_id(field): field.name for field in found.schema}
    names = written if set(names) == {None} else names
    columns = []
    for field in wanted:
        number = field_id(field)
        require(number in names or number not in written, f"column {field.name} is missing")
        if number not in names:
            value = initial.get(number)
            columns.append(pa.array([value] * found.num_rows, pa.string()).cast(field.type))
            continue
        values, there = found[names[number]], found.schema.field(names[number])
        if pa.types.is_nested(field.type):
            fit = fitting(there, field)
            columns.append(pa.array([fit(value) for value in values.to_pylist()], field.type))
        else:
            columns.append(values.cast(field.type))
    return pa.table(columns, schema=pa.schema(wanted))
