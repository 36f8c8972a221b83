"""Damaged or hostile Iceberg metadata is told or undone, and never harms the table (INV-17).

Whoever can write to ``metadata/`` can also seal what he writes: the checksum has no key. So half of
the damage is of values inside of metadata that is sealed anew, and of records inside of Avro files
that are whole.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from plait import Table
from plait.errors import TableError
from plait.interop.iceberg_files import POSITIONS, VECTORS, _entry_schema, _list_schema, _write
from plait.interop.iceberg_metadata import DIRECTORY, HINT, seal
from plait.services.maintenance.upkeep import finish_upkeep
from plait.testing import open_wrapped
from plait.testing.wrapper import WrappedStore
from tests.integration.interop.lives import held, version_of
from tests.support import build
from tests.support.build import rows
from tests.support.effort import share
from tests.support.published import (
    iceberg_metadata,
    iceberg_numbers,
    read_iceberg,
    read_records,
)

HOSTILE: tuple[object, ...] = (
    *(None, True, -1, 0, 1 << 40, 1 << 70, -(1 << 70), 1e308, "", "x" * 10_000, [], {}, [[]], "\0"),
    *("file:///etc/passwd", "/etc/passwd", "../../../etc/passwd", "s3://b/x", "memory://x"),
    *("metadata/../../../etc/passwd", "snap-1-1-0123456789abcdef.avro", "\ud800", "٣", "1_0"),
)
WORDS = (b"[" * 20_000, b"{}", b'{"properties":{}}', b"null", b"\xff\xfe", b"Obj\x01", b"PFA1", b"")
HUGE = 1 << 40
"""A size that no memory holds; the file is sparse."""


@pytest.fixture(scope="module", params=["positions", "vectors"])
def sound(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a table with metadata, manifests, files of deletes, and metadata of somebody else."""
    place = tmp_path_factory.mktemp("sound") / "t"
    properties = {
        **build.LITTLE,
        "publish": "iceberg",
        "publish.deadline": "1h",
        "publish.iceberg.deletes": request.param,
    }
    table = build.make(uri=place, table_type="mor", buckets=2, properties=properties)
    table.upsert(rows(range(9), v=1))
    for key in range(3):
        table.upsert(rows(key, v=2))
    table.maintenance.publish()
    (place / DIRECTORY / "00009-0123.metadata.json").write_text('{"format-version":2}')
    return place


def _change_value(said: Any, draw: Random) -> None:
    """Put a hostile value somewhere inside of a tree."""
    while True:
        key = draw.choice(list(said) if isinstance(said, dict) else range(len(said)))
        inner = said[key]
        if isinstance(inner, dict | list) and inner and draw.random() < 0.8:
            said = inner
            continue
        kind = draw.randrange(3)
        if kind == 0 and isinstance(said, dict):
            del said[key]
        elif kind == 1 and isinstance(said, list):
            said += said[:1] * draw.choice([1, 300])
        else:
            said[key] = draw.choice(HOSTILE)
        return


def _seal_anew(folder: Path, draw: Random) -> None:
    file = draw.choice(sorted(folder.glob("v*.metadata.json")))
    said = json.loads(file.read_text())
    with suppress(LookupError):
        for _ in range(draw.randrange(1, 4)):
            _change_value(said, draw)
    with suppress(KeyError, TypeError):  # without properties it cannot be sealed
        if draw.random() < 0.5:
            file = folder / f"v{draw.choice([5, 9, 10**14])}.metadata.json"
        file.write_bytes(seal(said))


def _write_records_anew(folder: Path, draw: Random) -> None:
    file = draw.choice(sorted(folder.glob("*.avro")))
    records = [dict(each) for each in read_records(file.read_bytes())]
    of = _list_schema if file.name.startswith("snap-") else _entry_schema
    for _ in range(draw.randrange(1, 3)):
        if records:
            _change_value(draw.choice(records), draw)
    with suppress(Exception):  # fastavro takes no value of another type
        file.write_bytes(_write(of(draw.choice([POSITIONS, VECTORS])), records, {}))


def _damage_bytes(folder: Path, draw: Random) -> None:
    file = draw.choice(sorted(folder.iterdir()))
    body = bytearray(file.read_bytes())
    kind = draw.randrange(6)
    if kind == 0:
        for _ in range(draw.randrange(1, 9)):
            body[draw.randrange(len(body))] = draw.randrange(256)
    elif kind == 1:
        del body[draw.randrange(len(body)) :]
    elif kind == 2:
        body = bytearray(draw.choice(WORDS) + bytes(body) * draw.randrange(2))
    elif kind == 3:
        file.unlink()
        return
    elif kind == 4:
        number = draw.choice([0, 3, 5, 9, 10**14, 10**30])
        file = folder / draw.choice(
            [f"v{number}.metadata.json", f"snap-{number}-5-{'a' * 16}.avro"]
        )
    else:
        with file.open("r+b") as opened:
            opened.truncate(HUGE)
        return
    file.write_bytes(body)


def _damage_hint(folder: Path, draw: Random) -> None:
    hints = (b"999999", b"-1", b"1_0", "٣".encode(), b"9" * 50, b"\xff", b"1\n", b"x" * 200)
    (folder.parent / HINT).write_bytes(draw.choice(hints))


DAMAGES = (_seal_anew, _write_records_anew, _damage_bytes, _damage_hint)


class Followed(WrappedStore):
    """Notes every file that is asked for."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.paths: set[str] = set()

    def call(self, operation: str, path: str, run: Callable[[], Any]) -> Any:
        """Note it."""
        self.paths.add(path)
        return run()


def _outside(place: Path) -> dict[Path, bytes]:
    files = (each for each in place.rglob("*.parquet") if DIRECTORY not in each.parts)
    return {each: each.read_bytes() for each in files}


@pytest.mark.parametrize("seed", range(share(48)))
def test_damaged_metadata_ends_in_an_error_that_is_told_or_is_undone(
    sound: Path, tmp_path: Path, seed: int
) -> None:
    """Nothing that it names outside of the table is opened, and no size of it fills the memory."""
    place, draw = tmp_path / "t", Random(seed)
    shutil.copytree(sound, place)
    if draw.random() < 0.5:  # as if the table had been here when it was published
        _move_names(place / DIRECTORY, sound, place)
    for _ in range(draw.randrange(1, 4)):
        draw.choice(DAMAGES)(place / DIRECTORY, draw)
    table, store = open_wrapped(str(place), Followed)
    before, wanted = _outside(place), held(table, version_of(table))
    table.inspect.publications()
    with suppress(TableError):
        table.maintenance.publish()
    table.inspect.publications()
    assert _outside(place) == before, "only metadata is touched"
    assert held(build.again(table), version_of(table)) == wanted
    table.upsert(rows(50, v=1))
    finish_upkeep()
    table.maintenance.clean()
    finish_upkeep()
    assert held(build.again(table), version_of(table)) == held(table, version_of(table))
    known = ("", ".meta", "data", DIRECTORY)
    strange = {path for path in store.paths if path.split("/")[0] not in known or ".." in path}
    assert not strange, f"followed: {strange}"


def _move_names(folder: Path, old: Path, new: Path) -> None:
    """Let metadata name another place; Avro files name none then that is theirs."""
    for file in folder.glob("v*.metadata.json"):
        said = json.loads(file.read_text().replace(str(old), str(new)))
        said["properties"].pop("plait.checksum")
        file.write_bytes(seal(said))


@pytest.mark.parametrize("seed", range(share(24)))
def test_the_next_publication_shows_the_rows_whatever_became_of_metadata_files(
    sound: Path, tmp_path: Path, seed: int
) -> None:
    """What cannot be sealed anew is undone: the newest metadata shows each version as it is."""
    place, draw = tmp_path / "t", Random(seed)
    shutil.copytree(sound, place)
    folder = place / DIRECTORY
    for file in draw.sample(sorted(folder.glob("v*.metadata.json")), draw.randrange(1, 4)):
        body = bytearray(file.read_bytes())
        for _ in range(draw.randrange(1, 4)):
            body[draw.randrange(len(body))] ^= 1 << draw.randrange(8)
        file.write_bytes(body)
    table = Table.open(str(place))
    try:
        table.maintenance.publish()
    except TableError as error:
        assert "metadata" in str(error)  # noqa: PT017 - whose it is cannot be told any more
        return
    store = table._handle.store
    said = iceberg_metadata(store, iceberg_numbers(store)[-1])
    assert (said["location"], said["current-snapshot-id"]) == (f"file://{place}", version_of(table))
    for shown in read_iceberg(store, said):
        found = table.scan(version=shown.version).to_arrow().to_pylist()
        wanted = sorted((tuple(each.values()) for each in found), key=repr)
        assert shown.rows(store) == wanted, shown.version
