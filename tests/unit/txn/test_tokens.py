"""Stream tokens: taken once, for ever, and only where they continue (INV-09)."""

from __future__ import annotations

import contextlib
import itertools
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pytest

from plait import EpochRewoundError, EpochUnknownError, OffsetGapError, StreamError, Table
from plait.model.decision import CommitResult, Span, Token
from plait.state.cache import StateCache
from plait.state.checkpoint import write_checkpoint
from plait.stream.audit import audit_of
from plait.testing import Fault, FaultStore, SimulatedCrashError
from plait.testing.expect import refused
from plait.txn.table_handle import TableHandle
from tests.support import build

make = partial(build.make, "id bigint", record_key=())


def fresh(table: Table) -> Table:
    """Give another client of the table, which knows nothing yet."""
    handle = table._handle
    return Table(replace(handle, cache=StateCache(handle.store, handle.ports)))


def write(table: Table, token: Token, *ids: int) -> CommitResult:
    with table.stream(token.application).writer_of(
        token, "append", on_conflict="retry", on_duplicate="raise"
    ) as writer:
        writer.write(pa.table({"id": pa.array(ids, pa.int64())}))
    return writer.result


def epochs(count: int, application: str = "app") -> list[Token]:
    bounds = ["", *(str(number) for number in range(1, count + 1))]
    return [Token(application, n, bounds[n], bounds[n + 1]) for n in range(count)]


@pytest.mark.parametrize(
    ("token", "kind"),
    [
        (Token("app", 2, "2", "other"), EpochRewoundError),
        (Token("app", 2, "1", "3"), EpochRewoundError),
        (Token("app", 0, "", "2"), EpochRewoundError),
        (Token("app", 3, "2", "4"), OffsetGapError),
        (Token("app", 3, "", "4"), OffsetGapError),
        (Token("app", 4, "3", "4"), EpochUnknownError),
        (Token("app", 7, "", "4"), EpochUnknownError),
        (Token("new", 0, "3", "4"), EpochUnknownError),
        (Token("new", 5, "5", "6"), EpochUnknownError),
    ],
)
def test_what_does_not_continue_is_an_error_and_writes_nothing(
    token: Token, kind: type[StreamError]
) -> None:
    table = make()
    for each in epochs(3):
        write(table, each, each.epoch)
    for client in (table, fresh(table)):
        with refused(kind) as refusal:
            write(client, token, 99)
        assert refusal.error.token == token.to_dict()
    assert table.version == 3
    assert table.inspect.timeline().pending == ()


def test_an_error_shows_long_offsets_as_far_as_they_can_be_read() -> None:
    table = make()
    write(table, epochs(1)[0], 1)
    for length in (120, 121):
        with refused(OffsetGapError) as refusal:
            write(table, Token("app", 1, "x" * length, "2"), 2)
        assert ("x" * 120 + "..." in refusal.error.message) is (length > 120)
        assert "x" * 120 in refusal.error.message


def test_others_do_not_hide_the_position_of_an_application() -> None:
    table = make()
    for mine, theirs in zip(epochs(3, "a"), epochs(3, "b"), strict=True):
        write(table, mine, 1)
        write(table, theirs, 2)
    table.append(pa.table({"id": [5]}))
    for name, version in (("a", 5), ("b", 6)):
        position = fresh(table).stream(name).position
        assert position is not None
        assert (position.epoch, position.end, position.version) == (2, "3", version)
    assert table.stream("a").audit().problems == ()


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize(
    ("ids", "end"),
    [((1, 2), "1"), ((1,), "1"), ((1,), "2")],
    ids=["the same", "other rows", "other rows and offsets"],
)
def test_of_two_who_race_with_one_epoch_one_applies_it(
    *, ids: tuple[int, ...], end: str, keyed: bool
) -> None:
    """INV-09: the second had staged its rows: it gets the first one's result, or is refused."""
    table = make(record_key=["id"] if keyed else [])
    same = ids == (1, 2)
    late = fresh(table).stream("app").writer("append", after=None, end=end)
    late.__enter__().write(pa.table({"id": [1, 2]}))
    first = write(table, epochs(1)[0], *ids)
    with contextlib.nullcontext() if same else refused(EpochRewoundError):
        late.__exit__(None, None, None)
    if same:
        assert (late.result.version, late.result.instant) == (first.version, first.instant)
    assert table.scan().count() == len(ids)
    assert table.inspect.timeline().pending == ()
    assert table.check.verify().notes == (), "the files of the second are gone"


def test_a_position_from_before_another_went_on_is_refused() -> None:
    """A reader that slept must not append what was appended."""
    table = make()
    stream = table.stream("app")
    write(table, epochs(1)[0], 1)
    slept = stream.position
    write(table, epochs(2)[1], 2)
    with refused(EpochRewoundError), stream.writer(after=slept, end="9") as writer:
        writer.write(pa.table({"id": [9]}))


def test_a_stream_is_taken_over_where_the_table_does_not_know_it() -> None:
    """What came before is refused: nobody knows which rows those were."""
    table = make()
    stream = table.stream("moved")
    stream.begin_at(epoch=41, end="41")
    for token in epochs(3, "moved"):
        with refused(EpochRewoundError):
            write(table, token, token.epoch)
    write(table, Token("moved", 42, "41", "42"), 1)
    with refused(EpochRewoundError):
        stream.begin_at(epoch=7, end="7")
    assert stream.audit().problems == ()


@pytest.mark.parametrize("keyed", [False, True])
def test_an_epoch_that_was_applied_gives_its_result_again_and_takes_no_other_rows(
    *, keyed: bool
) -> None:
    """INV-09: never a skip: also of an epoch that only a checkpoint knows, by any client."""
    table = make(record_key=["id"] if keyed else [])
    tokens = epochs(3)
    first = [write(table, token, token.epoch) for token in tokens]
    write_checkpoint(table._handle.store, table._handle.cache.known(), table._handle.ports)
    for client, epoch in itertools.product((table, fresh(table)), range(3)):
        for ids in ((90 + epoch,), (epoch, epoch + 10), ()):
            with refused(EpochRewoundError) as refusal:
                write(client, tokens[epoch], *ids)
            assert refusal.error.token["digest"][0] == len(ids)
            assert refusal.error.applied["digest"][0] == 1
        again = write(client, tokens[epoch], epoch)
        assert (again.version, again.instant) == (first[epoch].version, first[epoch].instant)
    assert table.version == 3, "nothing was written for it"
    assert build.ids(table) == [0, 1, 2]
    assert table.inspect.timeline().pending == ()


def test_rows_in_another_order_and_in_other_pieces_are_the_same_rows() -> None:
    table = make()
    token = epochs(1)[0]
    first = write(table, token, *range(100))
    with table.stream("app").writer_of(
        token, "append", on_conflict="retry", on_duplicate="raise"
    ) as writer:
        for at in (1, 0):
            writer.write(pa.table({"id": pa.array(range(at, 100, 2), pa.int32())}))
    assert writer.result.version == first.version
    assert table.scan().count() == 100


def test_offsets_of_a_source_tell_epochs_apart_that_hold_no_rows() -> None:
    """A batch of which a filter left nothing: what came next depends on where it ended."""
    table = make()
    first, second = epochs(2)
    known = replace(first, offsets=(Span("0", "", "10"), Span("1", "", "7")))
    result = write(table, known)
    assert write(table, known).version == result.version
    assert write(table, first).version == result.version, "who does not know them is not refused"
    with refused(EpochRewoundError):
        write(table, replace(first, offsets=(Span("0", "", "10"), Span("1", "", "8"))))
    with refused(OffsetGapError):
        write(table, replace(second, offsets=(Span("0", "10", "20"), Span("1", "8", "9"))))
    write(table, replace(second, offsets=(Span("0", "10", "20"), Span("1", "7", "9"))))
    audit = table.stream("app").audit()
    assert audit.problems == ()
    assert audit.proven == 2
    assert table.check.verify().problems == (), "it replays every decision, as an audit does"


def test_an_audit_shows_offsets_and_digests_and_finds_a_gap_between_them() -> None:
    table = make()
    first, second = epochs(2)
    write(table, replace(first, offsets=(Span("0", "", "10"),)), 1, 2)
    with refused(OffsetGapError):
        write(table, replace(second, offsets=(Span("0", "", "10"),)), 3)
    write(table, second, 3)
    found = table.stream("app").audit()
    assert [entry.offsets for entry in found.epochs] == [(Span("0", "", "10"),), ()]
    assert [entry.digest.rows for entry in found.epochs if entry.digest] == [2, 1]
    assert found.proven == 1, "the second epoch tells no offsets"
    told = found.to_dict()["epochs"][0]
    assert told["offsets"] == {"0": ["", "10"]}
    decisions = list(table._handle.cache.timeline.load_after(-1, limit=9))
    torn = replace(decisions[2].tokens[0], offsets=(Span("0", "12", "20"),))
    audit = audit_of("app", [*decisions[:2], replace(decisions[2], tokens=(torn,))])
    assert [problem.kind for problem in audit.problems] == ["gap"]
    assert "'10'" in audit.problems[0].message


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_a_partial_upsert_that_comes_again_is_compared_in_its_own_columns(table_type: str) -> None:
    table = build.make("id bigint, name string, note string", table_type=table_type)
    table.append(pa.table({"id": [1], "name": ["old"], "note": ["kept"]}))
    stream = table.stream("app")
    versions = set()
    for names in (["new"], ["new"], ["newer"]):
        with (
            refused(EpochRewoundError) if names == ["newer"] else contextlib.nullcontext(),
            stream.writer("upsert", after=None, end="1", missing_columns="keep") as writer,
        ):
            writer.write(pa.table({"id": [1], "name": names}))
        versions.add(writer.result.version if names == ["new"] else table.version)
    assert len(versions) == 1
    assert table.scan().to_arrow().to_pylist() == [{"id": 1, "name": "new", "note": "kept"}]


def test_an_epoch_is_applied_once_wherever_its_writer_dies() -> None:
    """INV-09: at every storage call; then another process sends the epoch again."""
    for nth in range(1, 100):
        table = make()
        handle = table._handle
        tokens = epochs(2)
        write(table, tokens[0], 0)
        faulty = FaultStore(handle.store, [Fault("crash_before", nth=nth)])
        dying = Table(
            TableHandle(faulty, handle.ports, StateCache(faulty, handle.ports), handle.lock)
        )
        try:
            write(dying, tokens[1], 1)
        except SimulatedCrashError:
            ended = False
        else:
            ended = True
        again = write(fresh(table), tokens[1], 1)
        table.maintenance.rollback()
        assert build.ids(table) == [0, 1]
        assert again.version == next(
            e.version for e in table.stream("app").audit().epochs if e.epoch == 1
        )
        if ended:
            return
    pytest.fail("the epoch never ended")
