"""Ways to damage one file of a table, each drawn from a seed."""

from __future__ import annotations

import hashlib
import io
import json
import os
import random
import shutil
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from tests.support.forge import footer_hash
from tests.support.lies import LIES, Checkpoint

BOMB = 1 << 10
NASTY: tuple[object, ...] = (
    None,
    "",
    -1,
    2**63,
    2**64,
    10**400,
    1e300,
    True,
    [],
    {},
    [[]],
    "x" * 5_000,
    "../../outside",
    "/etc/passwd",
    "\0",
    "\ud800",
    {"manifest": ".meta/table.json", "rows": 1, "sha256": ""},
)


@dataclass
class Case:
    """One file to be damaged, and others to take bytes from."""

    root: str
    path: str
    draw: random.Random
    others: list[str]
    """Files of the same kind in the same table."""
    foreign: list[str]
    """Absolute paths of files of the same kind in other tables."""
    outside: str
    other: str = ""
    """The file whose bytes came into this one's place, by its name in its table."""

    @property
    def file(self) -> Path:
        """The file."""
        return Path(self.root, self.path)

    def own(self, path: str) -> Path:
        """Give a file that no other copy of the table shares: bytes are changed in place."""
        file = Path(self.root, path)
        if file.stat().st_nlink > 1:
            body, times = file.read_bytes(), file.stat()
            file.unlink()
            file.write_bytes(body)
            os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
        return file


def flip(case: Case) -> None:
    """Flip a bit."""
    body = bytearray(case.file.read_bytes())
    if not body:
        body = bytearray(b"\0")
    body[case.draw.randrange(len(body))] ^= 1 << case.draw.randrange(8)
    case.file.write_bytes(body)


def truncate(case: Case) -> None:
    """Cut the end off, all but never all of it."""
    size = case.file.stat().st_size
    os.truncate(case.file, case.draw.randrange(1, size) if size > 1 else size)


def empty(case: Case) -> None:
    """Leave the name alone."""
    os.truncate(case.file, 0)


def remove(case: Case) -> None:
    """Remove the file."""
    case.file.unlink()


def swap(case: Case) -> None:
    """Exchange the file with one of the same kind; with any other where it is the only one."""
    pool = case.others or [".meta/table.json"]
    case.other = case.draw.choice(pool)
    other = case.own(case.other)
    mine, theirs = case.file.read_bytes(), other.read_bytes()
    case.file.write_bytes(theirs)
    other.write_bytes(mine)


def exchange(case: Case) -> None:
    """Exchange the file with one of its kind and size; if there is none, let the sizes fit."""
    size = case.file.stat().st_size
    pool = case.others or [".meta/table.json"]
    alike = [each for each in pool if Path(case.root, each).stat().st_size == size]
    case.other = case.draw.choice(alike or pool)
    other = case.own(case.other)
    mine, theirs = case.file.read_bytes(), other.read_bytes()
    case.file.write_bytes(theirs[: len(mine)] + theirs[-1:] * (len(mine) - len(theirs)))
    other.write_bytes(mine[: len(theirs)] + mine[-1:] * (len(theirs) - len(mine)))


def splice(case: Case) -> None:
    """Put a file of the same kind from another table in its place."""
    if case.foreign:
        shutil.copyfile(case.draw.choice(case.foreign), case.file)
    else:
        case.file.write_bytes(b"\0" * 100)


def patch(case: Case) -> None:
    """Write random bytes over a part."""
    body = bytearray(case.file.read_bytes() or b"\0" * 16)
    start = case.draw.randrange(len(body))
    body[start : start + 8] = case.draw.randbytes(8)
    case.file.write_bytes(body)


def link_out(case: Case) -> None:
    """Put a link to a file outside in its place."""
    case.file.unlink()
    case.file.symlink_to(Path(case.outside, "file"))


def link_zero(case: Case) -> None:
    """Put a link to an endless device in its place."""
    case.file.unlink()
    case.file.symlink_to("/dev/zero")


def link_folder(case: Case) -> None:
    """Put a link to a directory outside in place of its directory."""
    folder = case.file.parent
    if folder == Path(case.root):
        return
    shutil.rmtree(folder)
    folder.symlink_to(case.outside)


def fifo(case: Case) -> None:
    """Put a pipe that nobody writes to in its place."""
    case.file.unlink()
    os.mkfifo(case.file)


def directory(case: Case) -> None:
    """Put a directory in its place."""
    case.file.unlink()
    case.file.mkdir()


def sparse(case: Case) -> None:
    """Make it look huge."""
    os.truncate(case.file, 1 << 40)


def aged(case: Case) -> None:
    """Give it a time in the year 9999."""
    os.utime(case.file, (253_402_300_000, 253_402_300_000))


def bomb(case: Case) -> None:
    """Put few bytes in its place that become very many."""
    if case.path.endswith(".parquet"):
        value = pa.array(["x" * (1 << 20)])
        column = pa.DictionaryArray.from_arrays(pa.array([0] * BOMB, pa.int32()), value)
        names = _schema(case.file) or ["path"]
        sink = io.BytesIO()
        table = pa.table(dict.fromkeys(names[:1], column))
        pq.write_table(table, sink, compression="zstd", store_schema=False)
        case.file.write_bytes(sink.getvalue())
    else:
        case.file.write_bytes(b"[" * 4_000_000)
    _fix_references(case)


def reseal(case: Case) -> None:
    """Change a field, or name one twice, and make every checksum fit again."""
    body = case.file.read_bytes()
    edit = _RESEAL.get(case.path.rsplit(".", 1)[-1], _reseal_json)
    case.file.write_bytes(edit(case, body))
    _fix_references(case)


def lie(case: Case) -> None:
    """Make a checkpoint lie about a file: whole, with sizes and checksums that fit."""
    folder = Path(case.root, ".meta", "checkpoints")
    names = sorted(str(file.relative_to(case.root)) for file in folder.rglob("state.json"))
    if not names or not case.path.startswith(".meta/checkpoints/"):
        return  # the judge flips a bit instead

    def read(path: str) -> bytes:
        return Path(case.root, path).read_bytes()

    def write(path: str, body: bytes) -> None:
        case.own(path).write_bytes(body)

    path = case.path if case.path in names else names[-1]
    told = Checkpoint(read, write, path)
    lies = list(LIES)
    case.draw.shuffle(lies)
    next(each for each in lies if told.lie(each))


def _schema(file: Path) -> list[str]:
    try:
        return list(pq.read_schema(file).names)
    except (OSError, pa.ArrowException):
        return []


def _reseal_json(case: Case, body: bytes) -> bytes:
    if body.startswith(b'{"checksum":"') and b'\n"decision":' in body:
        inner = _edited(case, body.partition(b'\n"decision":')[2][:-2])
        digest = hashlib.sha256(inner).hexdigest().encode()
        return b'{"checksum":"' + digest + b'",\n"decision":' + inner + b"}\n"
    if b'"state"' in body[:200]:
        inner = _edited(case, json.loads(body)["state"].encode())
        digest = hashlib.sha256(inner).hexdigest()
        return json.dumps({"checksum": digest, "state": inner.decode()}).encode()
    return _edited(case, body)


def _edited(case: Case, body: bytes) -> bytes:
    try:
        document = json.loads(body)
    except ValueError:
        return case.draw.randbytes(len(body) + 8)
    if not isinstance(document, dict) or not document:
        return json.dumps(case.draw.choice(NASTY)).encode()
    if case.draw.randrange(6) == 0:  # a field that stands there twice
        key = case.draw.choice(list(document))
        twice = json.dumps({key: case.draw.choice(NASTY)})[1:-1].encode()
        return json.dumps(document).encode()[:-1] + b"," + twice + b"}"
    _set_somewhere(case.draw, document)
    return json.dumps(document, allow_nan=True).encode()


def _set_somewhere(draw: random.Random, document: object) -> None:
    """Change a value, however deep it lies."""
    while True:
        keys: list[object] = []
        if isinstance(document, dict):
            keys = list(document)
        elif isinstance(document, list):
            keys = list(range(len(document)))
        key = draw.choice(keys)
        inner = document[key]  # type: ignore[index]
        if not (isinstance(inner, (dict, list)) and inner) or draw.randrange(4) == 0:
            value = draw.choice([*NASTY, float("nan"), float("inf")])
            document[key] = value  # type: ignore[index]
            return
        document = inner


def _reseal_parquet(case: Case, body: bytes) -> bytes:
    try:
        table = pq.read_table(pa.BufferReader(body))
    except (OSError, pa.ArrowException):
        return case.draw.randbytes(64)
    choice = case.draw.randrange(6)
    column = case.draw.randrange(table.num_columns)
    field = table.schema.field(column)
    if choice == 0:
        table = table.append_column(field, table.column(column))  # a name that is there twice
    elif choice == 1:
        table = table.remove_column(column)
    elif choice == 2:
        table = table.set_column(column, field.name, pa.nulls(table.num_rows))
    elif choice == 3:
        table = table.set_column(column, field.name, pa.array(["../x"] * table.num_rows))
    elif choice == 4:
        table = table.set_column(
            column, field.name, pa.array([2**63 - 1] * table.num_rows, pa.int64())
        )
    else:
        table = pa.concat_tables([table, table])
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


def _reseal_binary(case: Case, body: bytes) -> bytes:
    if body.startswith(b"PLTK") and case.draw.randrange(2):
        count = case.draw.choice([0, 1, 2**63, 2**64 - 1, 7])
        return struct.pack("<8sQQ", body[:8], count, xxhash.xxh64_intdigest(body[24:])) + body[24:]
    return body[:1] + struct.pack(">i", case.draw.choice([-1, 2**31 - 1, 0])) + body[5:]


_RESEAL: dict[str, Callable[[Case, bytes], bytes]] = {
    "parquet": _reseal_parquet,
    "bin": _reseal_binary,
}


def _fix_references(case: Case) -> None:
    """Let whoever names a manifest or part by its checksum name the changed file."""
    changed = case.file.read_bytes()
    for file in sorted(Path(case.root, ".meta").rglob("*.json")):
        body = file.read_bytes()
        at = body.find(case.path.encode())
        if at < 0 or file == case.file or case.path.startswith(".meta/timeline"):
            continue  # a forged value may be the path itself
        _refit(case, case.own(str(file.relative_to(case.root))), body, changed)


def _refit(case: Case, file: Path, body: bytes, changed: bytes) -> None:
    digest = hashlib.sha256(changed).hexdigest()
    if file.name == "state.json":
        state = json.loads(json.loads(body)["state"])
        for part in state["parts"]:
            for entry in part["files"]:
                if entry[1] == case.path:
                    entry[3:] = [len(changed), footer_hash(changed), digest]
        inner = json.dumps(state).encode()
        sealed = {"checksum": hashlib.sha256(inner).hexdigest(), "state": inner.decode()}
        file.write_text(json.dumps(sealed))
        return
    document = json.loads(body)["decision"]
    for section in document["changes"].values():
        if isinstance(section, dict) and section.get("manifest") == case.path:
            section["sha256"] = digest
    inner = json.dumps(document).encode()
    sealed_by = hashlib.sha256(inner).hexdigest().encode()
    file.write_bytes(b'{"checksum":"' + sealed_by + b'",\n"decision":' + inner + b"}\n")


DAMAGES: dict[str, Callable[[Case], None]] = {
    damage.__name__: damage
    for damage in (
        flip, truncate, empty, remove, swap, exchange, splice, patch, link_out, link_zero,
        link_folder, fifo, directory, sparse, aged, bomb, reseal, lie,
    )
}  # fmt: skip
FORGED = frozenset({"reseal", "bomb"})
"""What checksums cannot find in principle: these are judged for crashes, hangs and memory alone."""
