"""A damaged or hostile Delta log is told, and never harms the table (INV-17)."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from plait import Table
from plait.errors import TableError
from tests.integration.interop.lives import PUBLISHED, held, version_of
from tests.support import build
from tests.support.build import rows
from tests.support.effort import share

WORDS = (b"[" * 20_000, b'{"add":1}', b'{"commitInfo":{"plait":[]}}', b"\xff\xfe", b"null", b"")


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a table with commits, checkpoints, and what somebody else wrote."""
    place = tmp_path_factory.mktemp("sound") / "t"
    properties = {**PUBLISHED, "checkpoint.interval": 2}
    table = build.make(uri=place, table_type="mor", properties=properties, upsert=rows(1, 2, v=1))
    for key in range(4):
        table.upsert(rows(key, v=2))
    strange = place / "_delta_log" / f"{version_of(table) + 1:020d}.json"
    strange.write_bytes(b'{"commitInfo":{"operation":"X"}}\n{"remove":{"path":"data/a"}}\n')
    return place


def _damage(log: Path, draw: Random) -> None:
    """Change, cut off, replace, move or delete one of its files."""
    file = draw.choice(sorted(log.iterdir()))
    body = bytearray(file.read_bytes())
    kind = draw.randrange(6)
    if kind == 0:
        for _ in range(draw.randrange(1, 9)):
            body[draw.randrange(len(body))] = draw.randrange(256)
    elif kind == 1:
        del body[draw.randrange(len(body)) :]
    elif kind == 2:
        body = bytearray(draw.choice(WORDS) + b"\n" + bytes(body) * draw.randrange(2))
    elif kind == 3:
        file.unlink()
        return
    elif kind == 4:
        file = log / f"{draw.choice([0, 3, 9, 10**15, 10**19]):020d}{''.join(file.suffixes)}"
    else:
        file = log / draw.choice(["_last_checkpoint", "x", f"{7:020d}.compacted.json"])
    file.write_bytes(body)


def _outside(place: Path) -> dict[Path, bytes]:
    kept = (each for each in place.rglob("*") if each.is_file())
    files = {each.relative_to(place): each.read_bytes() for each in kept}
    return {
        path: body for path, body in files.items() if path.parts[0] not in ("_delta_log", "_dv")
    }


@pytest.mark.parametrize("seed", range(share(60)))
def test_a_damaged_log_ends_in_an_error_that_is_told_or_is_undone(
    sound: Path, tmp_path: Path, seed: int
) -> None:
    place, draw = tmp_path / "t", Random(seed)
    shutil.copytree(sound, place)
    for _ in range(draw.randrange(1, 4)):
        _damage(place / "_delta_log", draw)
    table = Table.open(str(place))
    before, wanted = _outside(place), held(table, version_of(table))
    with suppress(TableError):
        table.maintenance.publish()
    table.inspect.publications()
    assert _outside(place) == before, "only the log is touched"
    assert held(build.again(table), version_of(table)) == wanted
    table.upsert(rows(50, v=1))
