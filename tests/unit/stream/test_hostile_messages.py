"""Whoever may write to a transport may send anything: its effect is bounded (RFC 0038)."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import jsonschema
import pyarrow as pa
import pytest

from plait import CorruptMetadataError, OptionError, StreamError
from plait.files.data_file import data_path
from plait.model.bucket import UNKEYED
from plait.model.changes import ADDED, Changes, WriteStatus
from plait.model.instant import Instant
from plait.stream.message_schema import KINDS, SCHEMA, misfit
from plait.stream.messages import TURNS_MAX, Report, decode, encode
from plait.stream.participant import status_of
from tests.fuzz.messages import VALUES, Fuzzing, sealed
from tests.support.stream_group import require_read_again
from tests.unit.stream.conftest import Make
from tests.unit.stream.test_messages import MESSAGES

LATER = "99980101000000000-0123456789abcdef"


@pytest.mark.long(1)
@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_a_hostile_message_does_a_bounded_amount_and_raises_no_foreign_error(seed: int) -> None:
    """INV-06, INV-09; ``make fuzz`` sends many more."""
    fuzzing = Fuzzing(seed)
    fuzzing.run(250)
    assert fuzzing.failures == []
    assert {name.split(":")[0] for name in fuzzing.counts} == set(KINDS)


def mutants() -> Iterator[dict[str, Any]]:
    """Make messages that have one or two values of another kind."""
    known = [json.loads(encode(each)) for each in MESSAGES]
    for message in known:
        for name in message["body"]:
            for value in VALUES:
                changed = copy.deepcopy(message)
                changed["body"][name] = value
                yield changed
        for value in VALUES:
            yield from ({**message, name: value} for name in sorted(message))
            yield {**message, "more": value}
        for name in message["body"]:
            changed = copy.deepcopy(message)
            del changed["body"][name]
            yield changed


def test_the_code_obeys_the_schema_that_is_published() -> None:
    """Two readers of one schema: that of ``jsonschema``, and the one that a message meets."""
    published, refused = jsonschema.Draft202012Validator(SCHEMA), 0
    for message in mutants():
        wrong, fits = misfit(message), published.is_valid(message)
        assert wrong or fits, message
        refused += bool(wrong)
        if wrong and fits:  # what JSON Schema has no word for
            assert "whole characters" in wrong, (wrong, message)
    assert refused > 1_000


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 200_000,
        b'{"a":' * 200_000,
        b'{"version":1,"kind":"HELLO","body":{"a":{"b":{"c":{}}}},"check":"0"}',
        b" " * (17 << 20),
        b"9" * 5_000,
        b'{"version":1,"kind":"HELLO","body":{},"check":1e999}',
        b'{"version":NaN}',
        b'"\xff"',
    ],
    ids=range(8),
)
def test_a_body_that_is_too_large_or_too_deep_is_refused_before_it_is_parsed(body: bytes) -> None:
    with pytest.raises(CorruptMetadataError):
        decode(body)


def forged(message: object, **fields: object) -> bytes:
    known = json.loads(encode(message))
    return sealed(known["kind"], {**known["body"], **fields})


@pytest.mark.parametrize(
    ("at", "fields"),
    [
        (8, {"writer": 5}),
        (8, {"life": ""}),
        (7, {"rows": 2**62}),
        (7, {"moved": 1}),
        (0, {"number": 2**62}),
        (4, {"offsets": {"s": 1}}),
    ],
)
def test_a_message_of_other_types_or_sizes_is_refused(at: int, fields: dict[str, object]) -> None:
    with pytest.raises(CorruptMetadataError):
        decode(forged(MESSAGES[at], **fields))


@pytest.mark.parametrize(
    ("at", "fields"),
    [
        (0, {"session": "99991399999999999-0123456789abcdef"}),
        (0, {"decided": 3}),
        (2, {"starts": {}}),
        (2, {"ends": {"other": "1"}}),
        (2, {"runs": ["../x"]}),
        (2, {"runs": ["/etc/passwd"]}),
        (2, {"file": "data/x", "file_hash": "0" * 32}),
        (3, {"file": "data/../../x"}),
        (3, {"file_hash": ""}),
        (4, {"rows": 1}),
        (6, {"number": 3}),
        (7, {"number": -1}),
    ],
)
def test_a_message_that_contradicts_itself_is_refused(at: int, fields: dict[str, object]) -> None:
    with pytest.raises(CorruptMetadataError):
        decode(forged(MESSAGES[at], **fields))


def test_a_turn_of_a_far_number_or_session_changes_nothing(make: Make) -> None:
    """Neither end follows a coordinator that there is not, and few messages are sent in answer."""
    group = make("a", "b")
    turn = group.coordinator._group.turns[-1].turn
    listener = group.hub.writer()
    for fields in (
        {"number": 2**31 - 1},
        {"number": TURNS_MAX + turn.number},
        {"number": turn.number + 1},
        {"session": LATER, "number": 2**31 - 1},
        {"session": LATER, "instant": LATER, "number": 5},
    ):
        for body in (forged(turn, **fields), forged(replace(turn, reset=True), **fields)):
            group.hub.coordinator().send(body)
            group.hub.writer().send(body)
    group.pump()
    group.coordinator.poll()
    sent = 0
    while listener.receive(0) is not None:
        sent += 1
    assert sent < 20
    require_read_again(group)


def test_a_turn_without_a_record_in_the_table_leaves_no_file(make: Make) -> None:
    """INV-06: a file under an instant that nobody requested would be nobody's."""
    group = make("a", "b")
    turn = group.coordinator._group.turns[-1].turn
    invented = Instant.parse("20990101000000000-0123456789abcdef")
    end = replace(turn, number=turn.number + 1, instant=invented, reset=False)
    group.hub.coordinator().send(encode(end))
    group.pump()
    group.take("a", 10)
    assert group.epoch() is None
    with pytest.raises(StreamError):
        group.epoch()
    files = [info.path for info in group.table._handle.store.list("data")]
    assert not any(str(invented) in path for path in files)
    require_read_again(group)


def report_of(turn: Any, path: str, **row: object) -> Report:
    found: dict[str, object] = {
        "path": path, "partition": "[]", "bucket": UNKEYED, "kind": "base", "rows": 1, "bytes": 1,
        "order": 0, "schema_id": turn.schema_id, "footer": 1, "stats": None, **row,
    }  # fmt: skip
    added = pa.Table.from_pylist([found], schema=ADDED)
    status = WriteStatus(Changes(added=added)).to_bytes()
    return Report(turn.table, turn.session, "a", "l", turn.number, {"a": ""}, {"a": "1"}, 1, 1,
        status=status)  # fmt: skip


def test_a_report_lists_only_new_files_of_its_own_instant(make: Make) -> None:
    group = make("a")
    turn = group.coordinator._group.turns[-1].turn
    own = data_path((), UNKEYED, turn.instant, "a-1", "base")
    status_of(report_of(turn, own), turn)
    other = data_path((), UNKEYED, Instant.parse(LATER), "a-1", "base")
    bad = [
        report_of(turn, other),
        report_of(turn, "../x.parquet"),
        report_of(turn, data_path((), UNKEYED, turn.instant, "a-1", "keys")),
        report_of(turn, own, partition='["x"]'),
        report_of(turn, own, partition="[" * 9_000),
        report_of(turn, own, bucket=3),
        report_of(turn, own, rows=-1),
        report_of(turn, own, schema_id=9),
        replace(report_of(turn, own), runs=(own,)),
        replace(report_of(turn, own), status=b"x" * 99),
        replace(report_of(turn, own), status=report_of(turn, own).status[:-200]),
    ]
    masked = pa.Table.from_pylist([{"path": own}], schema=pa.schema([("path", pa.string())]))
    changes = Changes(
        removed=masked.cast(pa.schema([pa.field("path", pa.string(), nullable=False)]))
    )
    bad.append(replace(report_of(turn, own), status=WriteStatus(changes).to_bytes()))
    for each in bad:
        with pytest.raises(CorruptMetadataError):
            status_of(each, turn)


def test_a_report_that_lists_what_is_not_its_own_commits_nothing_and_rows_are_read_again(
    make: Make,
) -> None:
    group = make("a", "b")
    group.take("a", 10)
    group.take("b", 10)
    turn = group.coordinator._group.turns[-1].turn
    life = turn.lives["a"]
    forged_report = replace(
        report_of(turn, data_path((), UNKEYED, Instant.parse(LATER), "a-1", "base")), life=life
    )
    group.hub.writer().send(encode(forged_report))
    group.turn()
    with pytest.raises(CorruptMetadataError):
        group.coordinator.complete()
    require_read_again(group)


@pytest.mark.parametrize("text", ["w" * 2_000, "\ud800"])
def test_a_name_or_offset_that_no_message_takes_is_refused_at_the_door(
    make: Make, text: str
) -> None:
    group = make("a")
    with pytest.raises(OptionError) as error:
        group.table.stream("app").participant(group.hub.writer(), text)
    assert error.value.key == "name"
    writer = group.writers["a"]
    for key, span in (("source", (text, "", "1")), ("end", ("a", "", text * 40))):
        source, start, end = span
        with pytest.raises(OptionError) as refused:
            writer.write(pa.table({"id": [1], "note": ["x"]}), source=source, start=start, end=end)
        assert refused.value.key == key
    require_alive(group)


def require_alive(group: Any) -> None:
    group.arrive(a=10)


def test_an_error_of_any_length_is_reported(make: Make) -> None:
    group = make("a", "b")
    with pytest.raises(Exception, match="x" * 50):
        group.writers["a"].write(
            pa.table({"x" * 9_000: ["\ud800".encode("utf-8", "replace").decode()]}),
            source="a", start="", end="1",
        )  # fmt: skip
    with pytest.raises(StreamError) as told:
        group.turn()
    assert len(told.value.message) < 5_000
    require_read_again(group)


def test_writers_and_farewells_without_number_are_bounded(make: Make) -> None:
    group = make("a")
    known = group.coordinator._group
    turn = known.turns[-1].turn
    hello = MESSAGES[6]
    farewell = MESSAGES[8]
    for number in range(10_050):
        group.hub.writer().send(
            encode(replace(farewell, table=turn.table, writer=f"n{number}", life=f"l{number}"))
        )
    group.coordinator.poll()
    assert len(known.parted) <= 10_000
    known.parted.clear()
    crowd = [
        replace(hello, table=turn.table, writer=f"w{number}", life="l", session=turn.session,
            number=turn.number)
        for number in range(10_050)
    ]  # fmt: skip
    assert known.admit(crowd) == []
    assert len(known.lives) == 10_000
    for number in range(10_050):
        known.leave_out(f"w{number}")
    require_alive(group)
