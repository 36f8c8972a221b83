"""Decisions give back what they were given; anything else in a slot is refused (INV-01)."""

from __future__ import annotations

import contextlib
import json
from dataclasses import fields, replace

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.errors import CorruptMetadataError, FormatError
from plait.model.bucket import partition_text
from plait.model.changes import SECTIONS, STATS, Changes, WriteStats
from plait.model.decision import (
    Cleaned,
    Decision,
    ReadSet,
    Replayed,
    Reserved,
    Restored,
    RolledBack,
    Savepoint,
    SavepointChange,
    Scope,
    SetBack,
    Token,
)
from plait.model.document import checksum_of, sealed_checksum, unseal
from plait.model.instant import TIME_MS_MAX, Action, Instant, Operation
from plait.state.checkpoint import write_checkpoint
from plait.testing import sim_ports
from plait.timeline import codec, paths
from plait.timeline.log import Timeline
from tests.support.effort import share
from tests.support.forge import seal
from tests.support.histories import History
from tests.support.protocol import client, create, memory

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
COUNT = st.integers(0, 2**62)
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)),
    max_leaves=8,
)
OBJECT = st.dictionaries(
    TEXT, st.one_of(st.integers(), TEXT, st.lists(TEXT, max_size=2)), max_size=3
)
PATH = st.text("abcdefghijklmnopqrstuvwxyz0123456789-~", min_size=1, max_size=12).map(
    lambda name: f"data/{name}.parquet"
)
PARTITION = st.lists(st.one_of(st.none(), TEXT), max_size=3).map(tuple)
INSTANT = st.builds(
    Instant.at, st.integers(0, TIME_MS_MAX), st.from_regex("[0-9a-f]{16}", fullmatch=True)
)


def _values(field: pa.Field) -> st.SearchStrategy[object]:
    values: st.SearchStrategy[object] = {
        pa.string(): PATH if "path" in field.name else TEXT,
        pa.int32(): st.integers(-1 if field.name == "bucket" else 0, 2**31 - 1),
        pa.int64(): COUNT,
        pa.uint64(): st.integers(0, 2**64 - 1),
        pa.bool_(): st.booleans(),
        pa.binary(): st.binary(max_size=20),
    }[field.type]
    if field.name == "partition":
        values = PARTITION.map(partition_text)
    return st.one_of(st.none(), values) if field.nullable else values


def _section(schema: pa.Schema, size_max: int) -> st.SearchStrategy[pa.Table]:
    row = st.fixed_dictionaries({field.name: _values(field) for field in schema})
    rows = st.lists(row, max_size=size_max)
    return rows.map(lambda listed: pa.Table.from_pylist(listed, schema=schema))


def changes(size_max: int = 4) -> st.SearchStrategy[Changes]:
    return st.builds(Changes, **{n: _section(s, size_max) for n, s in SECTIONS.items()})


SCOPES = st.builds(
    Scope,
    st.sampled_from(["buckets", "partitions", "table", "append"]),
    st.lists(PARTITION, max_size=3).map(tuple),
    st.one_of(st.none(), OBJECT),
)
DECISIONS = st.builds(
    Decision,
    version=COUNT,
    instant=INSTANT,
    action=st.sampled_from(Action),
    operation=st.sampled_from(Operation),
    base=st.integers(-1, 2**62),
    completed_ms=st.integers(0, TIME_MS_MAX),
    attempt=TEXT,
    previous=TEXT,
    changes=changes(),
    scope=SCOPES,
    read_set=st.one_of(
        st.none(),
        st.builds(ReadSet, COUNT, st.lists(st.one_of(st.none(), OBJECT), max_size=2).map(tuple)),
    ),
    schema_id=st.integers(0, 100),
    bucket_spec_id=st.integers(0, 100),
    commit_id=st.one_of(st.none(), TEXT),
    tokens=st.lists(st.builds(Token, TEXT, COUNT, TEXT, TEXT), max_size=2).map(tuple),
    rolled_back=st.lists(
        st.builds(RolledBack, INSTANT, TEXT, st.lists(PARTITION, max_size=2).map(tuple)), max_size=3
    ).map(tuple),
    cleaned=st.one_of(
        st.none(),
        st.builds(
            lambda final, more, *rest: Cleaned(final + more, final, *rest),
            st.integers(0, 1 << 40),
            st.integers(0, 1 << 40),
            st.lists(st.tuples(PATH, COUNT), max_size=3).map(tuple),
            st.lists(PATH, max_size=3).map(tuple),
            st.one_of(st.none(), COUNT),
        ),
    ),
    reserved=st.one_of(
        st.none(),
        st.builds(
            Reserved,
            INSTANT,
            SCOPES,
            st.lists(st.tuples(PARTITION, st.integers(-1, 100)), max_size=2).map(tuple),
        ),
    ),
    savepoint=st.one_of(
        st.none(),
        st.builds(SavepointChange, st.builds(Savepoint, TEXT, COUNT), st.booleans()),
    ),
    restored=st.one_of(
        st.none(),
        st.builds(Restored, COUNT, st.lists(st.tuples(COUNT, COUNT), max_size=2).map(tuple)),
    ),
    replayed=st.one_of(
        st.none(),
        st.builds(
            Replayed,
            st.lists(
                st.one_of(
                    st.builds(SetBack, TEXT),
                    st.builds(SetBack, TEXT, st.builds(Token, TEXT, COUNT, TEXT, TEXT), COUNT),
                ),
                max_size=2,
            ).map(tuple),
            st.lists(TEXT, max_size=2).map(tuple),
        ),
    ),
    table=st.one_of(st.none(), OBJECT),
    stats=st.builds(WriteStats, **dict.fromkeys(STATS, COUNT)),
    client=OBJECT,
)


EMPTY = Decision(
    version=0,
    instant=Instant.at(0, "0" * 16),
    action=Action.COMMIT,
    operation=Operation.UPSERT,
    base=-1,
    completed_ms=0,
    attempt="",
    previous="",
)


def same(one: Decision, other: Decision) -> bool:
    plain = [f.name for f in fields(Decision) if f.name not in ("changes", "checksum", "features")]
    return all(getattr(one, name) == getattr(other, name) for name in plain) and all(
        table.equals(other.changes.tables()[name]) for name, table in one.changes.tables().items()
    )


def decode(data: bytes) -> Decision:
    return Timeline(memory()).decode(0, data)


@given(DECISIONS)
def test_a_decision_is_read_as_it_was_written(decision: Decision) -> None:
    """INV-01."""
    decision = replace(decision, version=0)
    body = codec.encode(decision)
    back = decode(body)
    assert same(decision, back)
    assert back.checksum == sealed_checksum(body)
    assert codec.encode(back) == body


@given(changes(6))
def test_sections_mean_the_same_inline_and_in_manifests(staged: Changes) -> None:
    """INV-01: where a section stands depends on its size alone."""
    store = memory()
    timeline = Timeline(store)
    decision = replace(EMPTY, changes=staged)
    repeated = {name: pa.concat_tables([t] * 300) for name, t in staged.tables().items()}
    references = timeline.write_manifests(decision.instant, "a1", repeated)
    assert set(references) == {name for name, t in repeated.items() if t.num_rows}
    body = codec.encode(replace(decision, changes=Changes(**repeated)), references)
    assert len(body) < 8_000
    assert same(replace(decision, changes=Changes(**repeated)), timeline.decode(0, body))


@given(DECISIONS, st.binary(max_size=300), st.data())
def test_rubbish_flipped_bits_and_ends_that_are_cut_off_are_refused(
    decision: Decision, rubbish: bytes, data: st.DataObject
) -> None:
    """INV-01."""
    body = codec.encode(replace(decision, version=0))
    flipped = bytearray(body)
    flipped[data.draw(st.integers(0, len(body) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    cut = body[: data.draw(st.integers(1, len(body) - 1))]
    for damaged in (rubbish, bytes(flipped), cut):
        with pytest.raises(CorruptMetadataError):
            decode(damaged)


@given(DECISIONS, JSON, st.data())
def test_a_sealed_document_with_any_value_replaced_is_read_or_refused(
    decision: Decision, value: object, data: st.DataObject
) -> None:
    """INV-01: what is sealed is not trusted either; nothing but FormatError comes of it."""
    _, document = unseal(codec.encode(replace(decision, version=0)), path="slot")
    place, key = data.draw(st.sampled_from(_places(document)))
    place[key] = value  # type: ignore[index]  # a place is a list or an object
    with contextlib.suppress(FormatError):
        decode(seal(document))


@given(JSON)
def test_any_sealed_value_is_read_or_refused(value: object) -> None:
    """INV-01."""
    with pytest.raises(FormatError):
        decode(seal(value))


@settings(max_examples=share(100))
@given(JSON, st.data())
def test_a_table_definition_with_any_value_replaced_is_read_or_refused(
    value: object, data: st.DataObject
) -> None:
    """INV-01: what defines a table is not trusted either."""
    store = memory()
    create(store, partition_by=("day",), properties={"clean.retain.time": "1h"})
    path = paths.slot(0)
    _, document = unseal(store.find(path) or b"", path=path)
    place, key = data.draw(st.sampled_from(_places(document["table"])))
    place[key] = value  # type: ignore[index]  # a place is a list or an object
    store.put(path, seal(document))
    with contextlib.suppress(FormatError):
        client(store).cache.snapshot()


@settings(max_examples=share(100))
@given(JSON, st.data())
def test_a_checkpoint_with_any_value_replaced_is_read_or_refused(
    value: object, data: st.DataObject
) -> None:
    """INV-11: a sealed checkpoint is not trusted either."""
    history = History.begin(memory()).run([("add", 1, 0), ("mask", 0, 1)])
    write_checkpoint(history.store, history.state, sim_ports())
    path = paths.checkpoint(2)
    document = json.loads(json.loads(history.store.find(path) or b"")["state"])
    place, key = data.draw(st.sampled_from(_places(document)))
    place[key] = value  # type: ignore[index]  # a place is a list or an object
    body = json.dumps(document)
    sealed = {"checksum": checksum_of(body.encode()), "state": body}
    history.store.put(path, json.dumps(sealed).encode())
    with contextlib.suppress(FormatError):
        client(history.store).cache.snapshot()


def _places(value: object) -> list[tuple[object, object]]:
    """Give every (container, key) in a document."""
    keys: list[object] = []
    if isinstance(value, dict):
        keys = list(value)
    elif isinstance(value, list):
        keys = list(range(len(value)))
    places: list[tuple[object, object]] = [(value, key) for key in keys]
    for key in keys:
        places += _places(value[key])  # type: ignore[index]  # as above
    return places


def test_the_json_of_a_decision_has_no_spaces_and_no_escapes() -> None:
    """The bytes are what the specification says."""
    body = codec.encode(replace(EMPTY, attempt="é"))
    assert "é".encode() in body
    assert json.loads(body)["decision"]["attempt"] == "é"
