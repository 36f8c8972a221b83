"""tablectl locks."""

from __future__ import annotations

import json
import re

import pytest

from plait.errors import LockUnavailableError
from plait.table import Table

ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def test_locks_tells_who_holds_it_since_when(tablectl, tmp_path):
    uri = str(tmp_path / "t")
    table = Table.create(uri, "id bigint", lock="file")
    data = json.loads(tablectl("locks", uri, "--json").out)["data"]
    assert data == {"lock": "file", "provider": "file", "slots": "store", "holder": None}
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
