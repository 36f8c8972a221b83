"""No password is shown, and no foreign exception comes out of an adapter."""

from __future__ import annotations

import pickle  # noqa: TID251 - errors travel to the driver so

import pytest

from plait import Table
from plait.errors import OptionError, StorageError, TableError, redacted
from plait.model.store_address import StoreAddress
from plait.ports import SystemIds

SECRET = "s3cr3t"
PLACES = [
    f"sftp://me:{SECRET}@127.0.0.1:1/t",
    f"ftp://me:{SECRET}@127.0.0.1:1/t",
    f"no://me:{SECRET}@h/t",
    f"s3://me:{SECRET}@bucket/t",
    f"no://me:p@{SECRET}@h/t",
    f"memory://secrets?sig={SECRET}",
    f"http://127.0.0.1:1/t?a=1&X-Amz-Signature={SECRET}",
    f"no://me:p/{SECRET}@h/t",
    f"no://me:p#{SECRET}@h/t",
    f"no://me:p?{SECRET}@h/t",
    f"no://me:p {SECRET}@h/t",
    f"no://account;AccountKey={SECRET}",
]
NO_PLACES = [
    f"me:{SECRET}@h/t",
    f"sftp:me:{SECRET}@h/t",
    f"sftp:/me:{SECRET}@h/t",
    f"sftp:/me:p@{SECRET}@h/t",
    f"sftp:\\\\me:{SECRET}@h",
    f"file:me:{SECRET}@h/t",
    f" sftp://me:{SECRET}@h/t",
    f"c:me:{SECRET}@h/t",
]
"""Meant as URLs."""


@pytest.mark.parametrize("uri", [*PLACES, *NO_PLACES])
def test_a_password_in_a_url_is_never_shown(uri: str) -> None:
    with pytest.raises(TableError) as caught:
        Table.open(uri)
    error = caught.value
    shown = [str(error), repr(error), str(error.to_dict()), repr(pickle.loads(pickle.dumps(error)))]
    assert not [text for text in shown if SECRET in text]


@pytest.mark.parametrize("uri", NO_PLACES)
def test_a_refused_place_is_still_recognised(uri: str) -> None:
    with pytest.raises(OptionError) as caught:
        Table.open(uri)
    assert caught.value.key == "uri"
    assert "@h" in str(caught.value.value)


def test_a_store_shows_neither_its_options_nor_its_user() -> None:
    address = StoreAddress(PLACES[0], (("password", SECRET),))
    assert SECRET not in repr(address)
    assert address.uri == PLACES[0]


def test_what_is_no_user_stays() -> None:
    for text in (
        "s3://bucket/a@b",
        "me@example.com",
        "zookeeper://h1:2181,h2:2181/p",
        "file:///a:b@c",
        "abfss://container@account.dfs.core.windows.net/t",
        "https://h/a?list-type=2&prefix=b",
        "https://h?to=a@b",
        "hdfs://namenode:8020/a@b",
        "sftp://h:22: no route for me@h",
    ):
        assert redacted(text) == text


@pytest.mark.parametrize(
    "options",
    [{"key": "k", "bogus": 1}, {"key": "k", "client_kwargs": {"nonsense": 1}}, {}],
    ids=["unknown", "unknown deeper", "half of the credentials"],
)
def test_a_wrong_option_of_s3_is_an_error_of_ours(options: dict[str, object]) -> None:
    pytest.importorskip("s3fs")
    with pytest.raises(OptionError) as caught:
        Table.open("s3://bucket/t", storage_options={"secret": SECRET, **options})
    assert SECRET not in str(caught.value)


def test_a_server_that_cannot_be_reached_is_named() -> None:
    with pytest.raises(StorageError) as caught:
        Table.open(PLACES[1])
    assert "127.0.0.1" in str(caught.value)


def test_what_a_library_says_is_not_told_at_length(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(uri: str, **options: object) -> None:
        raise OSError("no library in /a\n" * 1_000)

    monkeypatch.setattr("fsspec.core.url_to_fs", fail)
    with pytest.raises(StorageError) as caught:
        Table.open("hdfs://host/t")
    assert len(str(caught.value)) < 600


def test_what_users_raise_or_store_forges_no_error_of_a_task() -> None:
    pytest.importorskip("pyspark")
    from plait.spark.transfer import find_error, marked

    secret, other = SystemIds().nonce(), SystemIds().nonce()
    forged = StorageError("forged", path="x")
    body = marked(forged, "").rpartition("[plait-error:")[2].strip(":]")
    for mark in (marked(forged, other), f"[plait-error:{body}]", f"[plait-error::{body}]"):
        assert find_error(f"raised by a user's function: {mark}", secret) is None
        real = StorageError(f"a value: {mark}", path="real")
        found = find_error(f"SparkException: {mark}\n at {marked(real, secret)} at line 1", secret)
        assert found is not None
        assert (found.path, found.message) == ("real", f"a value: {mark}")
