"""No password is shown, whatever it is made of and whichever class took the URL."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from plait.errors import TableError
from plait.kafka.records.registry import Registry
from plait.kafka.settings import SinkSettings
from plait.kafka.topic_sink import TopicSink
from plait.locks import open_lock
from plait.model.consent import Consent
from plait.model.store_address import StoreAddress
from plait.ports import Ports
from plait.replicate import SqlSink, TableSink
from plait.replicate.sink import SinkSchema
from plait.storage import open_store
from tests.support.effort import share

SECRET = "S3CR3Tw0rd"
AROUND = st.text("aZ9#/@:?%&=;, \\'\"\n\r[]", max_size=6)
PASSWORDS = st.builds("{}{}{}".format, AROUND, st.just(SECRET), AROUND)
SHAPES = st.sampled_from(
    [
        "{scheme}://user:{secret}@127.0.0.1:9/d",
        "{scheme}://{secret}@127.0.0.1:9/d",
        "{scheme}://:{secret}@127.0.0.1:9",
        "{scheme}://user:{secret}@[::1]:9/d?a=b",
        "{scheme}://127.0.0.1:9/d?password={secret}",
        "{scheme}://user:1{secret}@h.invalid:x/d",
    ]
)
COLUMNS = SinkSchema(pa.schema([("id", pa.int64())]), ("id",))


def registry(url: str) -> Iterator[object]:
    made = Registry(url, patience_s=0.0)
    yield made
    yield made.find(1)


def database(url: str) -> Iterator[object]:
    made = SqlSink("s", url, "t")
    yield made
    yield made.open(COLUMNS)


def place(url: str) -> Iterator[object]:
    yield StoreAddress(url, (("password", SECRET),))


def table(url: str) -> Iterator[object]:
    yield TableSink("s", url, {"password": SECRET})


def topic(url: str) -> Iterator[object]:
    made = SinkSettings(
        "127.0.0.1:9",
        ("events",),
        format="avro",
        registry=url,
        registry_client={"basic.auth.user.info": f"user:{SECRET}"},
        client={"sasl.password": SECRET},
    )
    yield made
    yield TopicSink("s", made.bootstrap, "t", made.client)


def lock(url: str) -> Iterator[object]:
    yield Consent.of([url])
    yield open_lock(url, open_store("memory://secret-lock"), Ports(), Consent())


TAKERS: dict[str, tuple[str, Callable[[str], Iterator[object]]]] = {
    "a registry": ("http", registry),
    "a database": ("postgresql+psycopg", database),
    "a store": ("sftp", place),
    "a table as a sink": ("sftp", table),
    "a Kafka sink": ("http", topic),
    "a lock": ("zookeeper", lock),
}


@pytest.mark.parametrize("taker", TAKERS)
@settings(max_examples=share(60))
@given(secret=PASSWORDS, shape=SHAPES)
@example(secret=f"{SECRET}#x", shape="{scheme}://user:{secret}@127.0.0.1:9")
@example(secret=f"{SECRET}/x", shape="{scheme}://user:{secret}@127.0.0.1:9")
@example(secret=f"p,{SECRET}", shape="{scheme}://user:{secret}@127.0.0.1:9")
@example(secret=f"p:{SECRET}#", shape="{scheme}://user:{secret}@127.0.0.1:9")
def test_no_class_that_takes_a_url_shows_what_is_secret_in_it(
    taker: str, secret: str, shape: str
) -> None:
    """In its repr, the message, the facts, and the errors that a traceback shows with it."""
    scheme, take = TAKERS[taker]
    url, shown = shape.format(scheme=scheme, secret=secret), list[str]()
    try:
        shown.extend(map(repr, take(url)))
    except TableError as error:
        shown += [str(error), repr(error), str(error.to_dict())]
        shown += traceback.format_exception(error)
        with contextlib.suppress(AttributeError):
            shown.append(str(error.facts))
    # Frames show lines of source, never values; the text of each error is among these.
    assert not [text for text in shown if SECRET in text], shown
