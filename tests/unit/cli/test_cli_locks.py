"""tablectl locks."""

from __future__ import annotations

import json
import os
import re

import pytest

from plait.errors import LockUnavailableError
from plait.locks import lease
from plait.locks.record import Claimant, LeaseRecord
from plait.storage import open_store
from plait.table import Table

ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


@pytest.mark.parametrize("lock", ["file", "lease:5s"])
def test_locks_tells_who_holds_it_since_when(tablectl, tmp_path, lock):
    uri = str(tmp_path / "t")
    table = Table.create(uri, "id bigint", lock=lock)
    data = json.loads(tablectl("locks", uri, "--json").out)["data"]
    provider = lock.split(":", maxsplit=1)[0]
    assert data == {"lock": lock, "provider": provider, "slots": "store", "holder": None}
    with table._handle.lock.acquire(wait_s=1, owner="the ingest") as held:
        data = json.loads(tablectl("locks", uri, "--json").out)["data"]
        shown = tablectl("locks", uri)
    assert list(data["holder"]) == ["owner", "since", "token", "lost"]
    assert "the ingest" in data["holder"]["owner"]
    assert ISO.fullmatch(data["holder"]["since"])
    assert (data["holder"]["token"], data["holder"]["lost"]) == (held.token, None)
    assert re.search(r"^held by +the ingest", shown.out, re.MULTILINE)
    assert re.search(r"^lost +no$", shown.out, re.MULTILINE)
    assert tablectl("locks", uri).out.count("nobody") == 1


def test_locks_tells_that_a_lease_seems_lost(tablectl, tmp_path):
    uri = str(tmp_path / "t")
    Table.create(uri, "id bigint", lock="lease:0.5s")
    ghost = LeaseRecord(6, 0.5).taken(Claimant("n", "a ghost", 1_700_000_000_000), ttl_s=0.001)
    open_store(uri).put(lease.PATH, ghost.encode("by hand"))
    place = tmp_path / "t" / lease.PATH
    written = place.stat().st_mtime - 60  # a fast machine asks in the millisecond of the write
    os.utime(place, (written, written))
    state = Table.open(uri).inspect.locks()
    assert state.holder is not None
    assert (state.holder.owner, state.holder.token) == ("a ghost", 7)
    ran = tablectl("locks", uri)
    assert re.search(r"^since \(UTC\) +2023-11-14 22:13:20$", ran.out, re.MULTILINE)
    assert re.search(r"^lost +not renewed for", ran.out, re.MULTILINE)


def test_a_service_that_is_away_ends_in_5_and_says_what_to_do(tablectl, tmp_path):
    uri = str(tmp_path / "t")
    Table.create(uri, "id bigint", lock="zookeeper://127.0.0.1:9/x?session=0.5s")
    assert tablectl("locks", uri).code == 9
    ran = tablectl("locks", uri, "--allow", "zookeeper://127.0.0.1:9/x")
    assert (ran.code, ran.out) == (5, "")
    assert ran.err.startswith("error[lock_unavailable]: ")
    assert "127.0.0.1:9" in ran.err
    with pytest.raises(LockUnavailableError):
        Table.open(uri, allow="zookeeper://127.0.0.1:9/*").inspect.locks()
