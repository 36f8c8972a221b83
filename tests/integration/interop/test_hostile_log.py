"""A damaged or hostile Delta log is told, and never harms the table (INV-17)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from plait import CorruptMetadataError, StorageError, Table
from plait.errors import TableError
from plait.interop.delta_log import (
    MARK_BYTES_MAX,
    checkpoint_path,
    commit_path,
    read_mark,
)
from plait.interop.publication import delta_publisher
from plait.interop.publisher import KeptRange
from plait.testing import open_wrapped
from plait.testing.wrapper import WrappedStore
from tests.integration.interop.lives import PUBLISHED, commits, held, shown, version_of
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


# --- sizes and numbers --------------------------------------------------------------------------


def _published(place: Path, **properties: object) -> Table:
    table = build.make(uri=place, properties={**PUBLISHED, **properties}, upsert=rows(1, v=1))
    table.upsert(rows(2, v=2))
    return table


def _trim(table: Table, horizon: int) -> None:
    cache = table._handle.cache
    kept = KeptRange(horizon, horizon)
    delta_publisher(table._handle).trim(cache.refresh(), kept, cache.refresh)


def _is_whole(table: Table) -> None:
    """Look at the newest commit, and at what is told of the log."""
    (status,) = table.inspect.publications()
    assert (status.version, status.foreign, status.problem) == (version_of(table), 0, None)
    assert shown(table, "deltalake", commits(table)[-1]) == held(table, version_of(table))


def test_a_first_line_that_no_mark_needs_is_not_parsed() -> None:
    line = b'{"commitInfo":{"inCommitTimestamp":1,"plait":{"version":1,"schema":1,"start":0'
    line += b',"startTime":1,"features":[],"table":"t","instant":"i"%s}}}'
    assert read_mark(line % b"") is not None
    assert read_mark(line % (b',"x":"%s"' % (b"x" * MARK_BYTES_MAX))) is None


class _ShortReads(WrappedStore):
    """A store that reads no whole file of the log that is longer than a mark can be."""

    def find(
        self, path: str, *, size_max: int = 1 << 26, later: Sequence[str] = ()
    ) -> bytes | None:
        body = super().find(path, size_max=size_max, later=later)
        assert body is None or not path.endswith(".json") or len(body) <= MARK_BYTES_MAX, path
        return body


def test_a_long_commit_of_ours_is_known_by_its_beginning(tmp_path: Path) -> None:
    table = _published(tmp_path / "t")
    path = tmp_path / "t" / commit_path(commits(table)[-1])
    with path.open("ab") as file:  # as if it had many files
        file.write(b'{"txn":{"appId":"x","version":1}}\n' * 10_000)

    client, _ = open_wrapped(build.uri_of(table), _ShortReads)
    client.upsert(rows(3, v=3))
    client.maintenance.publish()
    _is_whole(table)


def test_a_commit_larger_than_anything_of_ours_is_undone(tmp_path: Path) -> None:
    table = _published(tmp_path / "t")
    at = commits(table)[-1] + 1
    with (tmp_path / "t" / commit_path(at)).open("wb") as file:
        file.truncate(2 << 30)
    (target,) = table.maintenance.publish().targets
    assert [each.commits for each in target.undone] == [(at,)]
    (tmp_path / "t" / commit_path(at)).unlink()  # engines would read it before the checkpoint
    _is_whole(table)


def test_a_checkpoint_larger_than_ours_is_replaced(tmp_path: Path) -> None:
    table = _published(tmp_path / "t")
    path = tmp_path / "t" / checkpoint_path(commits(table)[-1] + 1)
    with path.open("wb") as file:
        file.truncate(2 << 30)
    table.upsert(rows(3, v=3))
    _is_whole(table)
    assert path.stat().st_size < 1 << 20


@pytest.mark.parametrize("kind", [commit_path, checkpoint_path])
@pytest.mark.parametrize("number", [(1 << 48) - 1, 1 << 40])
def test_a_number_that_leaves_no_room_is_named_before_anything_is_written(
    tmp_path: Path, number: int, kind: Callable[[int], str]
) -> None:
    table = _published(tmp_path / "t")
    strange = tmp_path / "t" / kind(number)
    strange.write_bytes(b'{"commitInfo":{}}\n')
    before = sorted((tmp_path / "t" / "_delta_log").iterdir())
    with pytest.raises(CorruptMetadataError) as raised:
        table.maintenance.publish()
    assert raised.value.path == kind(number)
    assert sorted((tmp_path / "t" / "_delta_log").iterdir()) == before
    assert kind(number) in str(table.inspect.publications()[0].problem)
    assert kind(number) in str(table.maintenance.clean().held_back)
    strange.unlink()
    table.maintenance.publish()
    _is_whole(table)


@pytest.mark.parametrize("begins", [True, False])
def test_a_log_of_ours_below_many_commits_of_others_is_never_taken_for_theirs(
    tmp_path: Path, begins: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plait.interop.delta_log._LOOKED_AT_MAX", 3)
    table = _published(tmp_path / "t", **build.LITTLE)
    _trim(table, 1)
    first, last = commits(table)[0], commits(table)[-1]
    places = [*range(last + 1, last + 6), *([] if begins else [first - 1])]
    for number in places:
        (tmp_path / "t" / commit_path(number)).write_bytes(b'{"commitInfo":{}}\n')
    if begins:
        table.maintenance.publish()
        _is_whole(table)
        return
    with pytest.raises(CorruptMetadataError, match="is of this table"):
        table.maintenance.publish()
    horizon = table._handle.cache.refresh().horizon
    report = table.maintenance.clean()
    assert table._handle.cache.refresh().horizon == horizon
    assert report.held_back, "the clean tells that it let go of nothing"


class _Outrun(WrappedStore):
    """A store in which somebody else takes each number of the log first."""

    def put_if_absent(self, path: str, body: bytes) -> bool:
        if path.startswith("_delta_log/") and path.endswith(".json"):
            super().put_if_absent(path, b'{"commitInfo":{}}\n')
        return super().put_if_absent(path, body)


def test_a_publisher_that_is_never_first_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plait.interop.publisher.LOSSES_MAX", 3)
    table = _published(tmp_path / "t")
    client, _ = open_wrapped(build.uri_of(table), _Outrun)
    client.upsert(rows(3, v=3))
    with pytest.raises(StorageError, match="first 3 times"):
        client.maintenance.publish()
    assert version_of(table) == 3, "the commit stands"
    table.maintenance.publish()
    _is_whole(table)


# --- checkpoints and trims ----------------------------------------------------------------------


@pytest.mark.parametrize("client", ["knows the log", "is new"])
def test_a_checkpoint_that_waits_for_the_next_commit_is_replaced(
    tmp_path: Path, client: str
) -> None:
    """A publisher of a history that was cut off died between it and its commit."""
    table, other = _published(tmp_path / "t"), _published(tmp_path / "o")
    number = commits(table)[-1] + 1
    publisher, cache = delta_publisher(other._handle), other._handle.cache
    end, state = publisher.look(cache.refresh(), cache.refresh)
    assert end.ours is not None
    publisher._log.put_checkpoint(end.number, publisher._all(state, end.ours))
    shutil.copy(
        tmp_path / "o" / checkpoint_path(end.number), tmp_path / "t" / checkpoint_path(number)
    )
    writer = table if client == "knows the log" else build.again(table)
    writer.upsert(rows(3, v=3))
    assert commits(table)[-1] == number
    _is_whole(table)


def test_a_trim_keeps_what_is_readable_below_an_undo(tmp_path: Path) -> None:
    table = _published(tmp_path / "t")
    for key in range(3, 6):
        table.upsert(rows(key, v=key))
    strange = tmp_path / "t" / commit_path(commits(table)[-1] + 1)
    strange.write_text(json.dumps({"commitInfo": {}}))
    for key in range(6, 9):
        table.upsert(rows(key, v=key))
    for horizon in (3, 4):
        _trim(table, horizon)
        assert commits(table)[0] == horizon
    _trim(table, 6)
    assert commits(table)[0] == 8, "the undo shows version 5 again"
    assert shown(table, "deltalake", 8) == held(table, 6)
