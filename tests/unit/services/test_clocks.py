"""One clock rules a table: who cannot learn it judges nobody (INV-05, INV-06)."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from plait.errors import ClockUnavailableError
from plait.model.instant import time_ms
from plait.model.store_address import StoreAddress
from plait.queries.describe import load_timeline
from plait.services.maintenance.clean import clean
from plait.storage.disk import TEMP_PREFIX
from plait.storage.fsspec_store import FsspecStore
from plait.storage.local import LocalStore
from plait.storage.memory import MemoryStore
from plait.storage.port import Store
from plait.testing import Fault, FaultStore, SimClock
from plait.timeline.pending import load_pending
from plait.txn.read_pin import ReadPin, load_read_pins
from plait.txn.recovery import maintain, roll_back_failed
from tests.support.build import LITTLE
from tests.support.protocol import Work, client, create, listed, memory, upsert

AHEAD_MS = 26 * 3_600_000


class _Silent:
    """A file system of fsspec that tells no times while it is told not to."""

    def __init__(self, inner: object, silent: int) -> None:
        self._inner, self._silent = inner, silent

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def info(self, path: str, **options: object) -> object:
        if "hints/clock" in path and self._silent > 0:
            self._silent -= 1
            raise OSError(5, "the server did not answer")
        return self._inner.info(path, **options)  # type: ignore[attr-defined]  # fsspec's


def silent_store(path: Path, *, times: int) -> FsspecStore:
    """Give a store on another machine whose clock request fails, on a host 26 h ahead."""
    ahead = SimClock(_now_ms() + AHEAD_MS)
    store = FsspecStore(StoreAddress(f"local://{path}/table"), clock=ahead)
    store._files = _Silent(store._files, times)
    return store


def _now_ms() -> int:
    return os.stat("/proc/self").st_mtime_ns // 1_000_000


def busy(store: Store, clock: SimClock | None = None) -> tuple[Work, ReadPin]:
    """Give a table with files of the past, a living writer and a reader of the first version."""
    create(store, properties=LITTLE)
    upsert(client(store, clock), mark="0")
    lease = ReadPin(client(store, clock), 1)
    writer = Work.begin(client(store, clock), [((), 1)], mark="alive")
    for number in range(1, 4):
        upsert(client(store, clock), mark=str(number))
    return writer, lease


@pytest.mark.parametrize("times", [1, 2, 99])
def test_a_server_that_does_not_tell_its_time_is_not_replaced_by_the_host(
    tmp_path: Path, times: int
) -> None:
    """INV-05: one failed request, and a host 26 h ahead, deleted files under a live lease."""
    local = LocalStore(str(tmp_path / "table"))
    writer, _ = busy(local)
    before = listed(local, "data")
    handle = client(silent_store(tmp_path, times=times))
    with pytest.raises(ClockUnavailableError) as caught:
        clean(handle)
    assert caught.value.uri == f"local://{tmp_path}/table"
    assert listed(local, "data") == before
    assert len(load_pending(local)) == 1
    assert not any(lease.expired for lease in load_read_pins(client(local)))
    assert writer.commit().version == 5
    assert roll_back_failed(client(silent_store(tmp_path, times=0)), reason="test").ended == ()


@pytest.mark.parametrize("nth", [1, 2, 3, 4, 5])
def test_a_clean_whose_clock_fails_at_any_request_harms_nobody(nth: int) -> None:
    """INV-05."""
    clock = SimClock()
    store = memory(clock)
    writer, _ = busy(store, clock)
    before = listed(store, "data")
    faults = FaultStore(store, [Fault("error", "now", nth=nth, times=99)])
    with pytest.raises(ClockUnavailableError):
        clean(client(faults, clock))
    assert set(before) <= set(listed(store, "data"))
    assert writer.commit().version > 4
    assert load_pending(store) == []


def test_maintenance_without_a_clock_says_so_and_rolls_nobody_back(
    store: MemoryStore, clock: SimClock, caplog: pytest.LogCaptureFixture
) -> None:
    """INV-06: and people see what is pending."""
    work = Work.begin(client(store, clock), [((), 2)], mark="dead?")
    clock.advance(3_600)
    blind = FaultStore(store, [Fault("error", "now", times=99)])
    handle = client(blind, clock)
    handle.heartbeat_cache.note_silence()
    with caplog.at_level(logging.WARNING):
        maintain(handle)
    assert "does not return its time" in caplog.text
    with pytest.raises(ClockUnavailableError):
        roll_back_failed(client(blind, clock), reason="test")
    (entry,) = load_timeline(client(blind, clock)).pending
    assert (entry.instant, entry.silent_ms, entry.alive) == (work.txn.instant, None, True)
    assert work.commit().version == 1


def test_a_disk_has_one_clock_whatever_its_clients_believe(tmp_path: Path) -> None:
    """INV-05: a cleaner 25 h ahead removed versions that were seconds old."""
    ahead = SimClock(_now_ms() + AHEAD_MS)
    local, skewed = LocalStore(str(tmp_path)), LocalStore(str(tmp_path), clock=ahead)
    assert abs(skewed.now_ms() - local.now_ms()) < 60_000
    create(local, properties={"clean.retain.versions": "1", "clean.grace": "0s"})
    for number in range(4):
        upsert(client(local), mark=str(number))
    report = clean(client(skewed, ahead))
    assert (report.version, report.deleted) == (None, ())
    upsert(client(skewed, ahead), mark="ahead")
    newest = client(local).cache.refresh()
    assert abs(newest.completed_ms - local.now_ms()) < 60_000
    assert abs(time_ms(newest.newest_time) - local.now_ms()) < 60_000


def test_temporary_files_of_the_living_stay_whatever_a_client_believes(tmp_path: Path) -> None:
    ahead = SimClock(_now_ms() + AHEAD_MS)
    skewed = LocalStore(str(tmp_path), clock=ahead)
    skewed.put("dir/file", b"1")
    temp = tmp_path / f"dir/{TEMP_PREFIX}1"
    temp.write_bytes(b"half")
    assert [info.path for info in skewed.list("")] == ["dir/file"]
    assert temp.exists()
