"""S3: lost replies, refusals, and servers that do not know conditional writes."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from plait.errors import OptionError, StorageError
from plait.model.store_address import StoreAddress
from plait.storage import open_store, probe
from plait.storage.objects import ATTEMPTS_MAX
from plait.storage.s3 import S3Store
from plait.testing import SeqIds, SimClock
from tests.services.s3 import S3Server

pytestmark = pytest.mark.s3


@pytest.fixture
def server(s3_server: S3Server) -> Iterator[S3Server]:
    s3_server.clear_faults()
    s3_server.requests()
    yield s3_server
    s3_server.clear_faults()


def open_table(server: S3Server, name: str, *, bucket: str | None = None) -> S3Store:
    uri = f"s3://{bucket or server.bucket}/s3/{name}"
    return S3Store(StoreAddress(uri, tuple(server.options.items())), clock=SimClock(), ids=SeqIds())


@pytest.fixture
def store(server: S3Server, request: pytest.FixtureRequest) -> S3Store:
    return open_table(server, request.node.name)


def test_a_slot_and_a_look_cost_one_request_and_a_swap_two(
    server: S3Server, store: S3Store
) -> None:
    store.put_if_absent("slot", b"1")
    store.find("slot")
    store.find("absent")
    assert store.replace("slot", b"2", expected=b"1")
    methods = [request.split()[0] for request in server.requests()]
    assert methods == ["PUT", "GET", "GET", "GET", "PUT"]


def test_an_empty_file_is_empty_and_not_missing(store: S3Store) -> None:
    """INV-01: an emptied slot keeps its name."""
    store.put("slot", b"")
    assert store.find("slot") == b""
    assert store.find("slot", size_max=0) == b""


@pytest.mark.parametrize("fault", ["reply lost", "409", "500", "503"])
def test_a_win_stays_a_win_and_a_loss_a_loss_whatever_became_of_the_reply(
    server: S3Server, store: S3Store, fault: str
) -> None:
    """INV-10."""
    server.fault("PUT", "slot", fault)
    assert store.put_if_absent("slot", b"first")
    assert store.find("slot") == b"first"
    server.fault("PUT", "slot", fault)
    assert not store.put_if_absent("slot", b"second")
    assert store.find("slot") == b"first"


def test_an_outcome_that_stays_unknown_is_told_and_tried_a_bounded_number_of_times(
    server: S3Server, store: S3Store
) -> None:
    server.fault("PUT", "slot", "409", times=10_000)
    with pytest.raises(StorageError) as caught:
        store.put_if_absent("slot", b"ours")
    assert caught.value.path == "slot"
    puts = [request for request in server.requests() if request.startswith("PUT")]
    assert len(puts) == ATTEMPTS_MAX
    server.clear_faults()
    store.put("lease", b"1")
    server.fault("PUT", "lease", "409", times=10_000)
    with pytest.raises(StorageError) as caught:
        store.replace("lease", b"2", expected=b"1")
    assert caught.value.path == "lease"


def test_a_bucket_that_is_missing_is_an_error_at_once(server: S3Server) -> None:
    store = open_table(server, "t", bucket="none")
    for attempt in (store.put, store.put_if_absent):
        with pytest.raises(StorageError):
            attempt("slot", b"1")
    assert len(server.requests()) == 2


@pytest.mark.parametrize(("bucket", "deaf"), [("deaf", "/deaf/"), ("half-deaf", "/s/")])
def test_a_server_that_ignores_a_condition_is_found_out(
    server: S3Server, monkeypatch: pytest.MonkeyPatch, bucket: str, deaf: str
) -> None:
    """By the probe, though the kind of store is known to be atomic; swaps it races in ``s``."""
    monkeypatch.setattr(probe, "ROUNDS", 3)
    server.make_bucket(bucket)
    server.fault("PUT", deaf, "ignore", times=1_000_000)
    found = open_table(server, "t", bucket=bucket).capabilities
    assert (found.put_if_absent, found.compare_and_swap) == (bucket != "deaf", False)


def test_a_swap_is_one_or_none_whatever_became_of_the_reply(
    server: S3Server, store: S3Store
) -> None:
    """INV-10."""
    store.put("lease", b"1")
    server.fault("PUT", "lease", "reply lost")
    assert store.replace("lease", b"2", expected=b"1")
    server.fault("GET", "lease", "reply lost")
    assert not store.replace("lease", b"ours", expected=b"1")
    assert store.find("lease") == b"2"
    server.fault("PUT", "lease", "409", times=2)
    assert store.replace("lease", b"3", expected=b"2"), "a refusal is tried again"


def test_a_large_object_is_compared_whole(store: S3Store) -> None:
    """Its bytes come in parts; a part of it is not something else."""
    before, after = b"a" * (3 << 20), b"b" * (3 << 20)
    for number in range(2):
        store.put("lease", before)
        assert not store.replace("lease", after, expected=before[:-1])
        assert not store.replace("lease", after, expected=before + b"a")
        assert store.replace("lease", after, expected=before), number


def test_the_clock_is_the_servers(store: S3Store) -> None:
    """Though our own says 2023."""
    assert abs(store.now_ms() / 1000 - time.time()) < 60  # noqa: TID251 - the server's, too


def test_many_files_are_deleted_with_one_request(server: S3Server, store: S3Store) -> None:
    paths = [f"dir/{number}" for number in range(10)]
    for path in paths:
        store.put(path, b"1")
    server.requests()
    store.delete([*paths, "absent"])
    assert len(server.requests()) == 1
    assert list(store.list("")) == []


def test_listings_go_on_over_pages(
    server: S3Server, store: S3Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [f"dir/{number}" for number in range(7)]
    for path in paths:
        store.put(path, b"1")
    call = store._files.call_s3

    def small_pages(method: str, **facts: object) -> object:
        return call(method, MaxKeys=3, **facts)

    monkeypatch.setattr(store._files, "call_s3", small_pages)
    assert [info.path for info in store.list("dir")] == paths


def test_options_that_s3fs_refuses_are_refused() -> None:
    with pytest.raises(OptionError):
        open_store("s3://bucket/t", {"key": "a", "username": "b"})
