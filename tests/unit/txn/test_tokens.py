"""Stream tokens: taken once, for ever, and only where they continue (INV-09)."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pyarrow as pa
import pytest

from plait import EpochRewoundError, EpochUnknownError, OffsetGapError, StreamError, Table
from plait.model.decision import CommitResult, Token
from plait.state.cache import StateCache
from plait.state.checkpoint import write_checkpoint
from plait.testing import Fault, FaultStore, SimulatedCrashError
from plait.testing.expect import refused
from plait.txn.site import Site

_NAMES = itertools.count()


def make(**more: object) -> Table:
    return Table.create(f"memory://tokens-{next(_NAMES)}", "id bigint", **more)  # type: ignore[arg-type]


def fresh(table: Table) -> Table:
    """Give another client of the table, which knows nothing yet."""
    site = table.site
    return Table(replace(site, cache=StateCache(site.store, site.ports)))


def write(table: Table, token: Token, *ids: int) -> CommitResult:
    with table.stream(token.application).writer_of(
        token, "append", on_conflict="retry", on_duplicate="raise"
    ) as writer:
        writer.write(pa.table({"id": pa.array(ids, pa.int64())}))
    return writer.result


def epochs(count: int, application: str = "app") -> list[Token]:
    bounds = ["", *(str(number) for number in range(1, count + 1))]
    return [Token(application, n, bounds[n], bounds[n + 1]) for n in range(count)]


def test_the_same_token_gives_the_first_result_for_ever() -> None:
    """INV-09: also an old one, from another client, after a checkpoint."""
    table = make()
    tokens = epochs(5)
    first = [write(table, token, token.epoch) for token in tokens]
    write_checkpoint(table.site.store, table.site.cache.known(), table.site.ports)
    for token, result in zip(tokens, first, strict=True):
        again = write(fresh(table), token, 99)
        assert (again.version, again.instant) == (result.version, result.instant)
    assert table.version == 5, "nothing was written for it"
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [0, 1, 2, 3, 4]


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
    assert table.timeline.pending == ()


def test_applications_do_not_meet() -> None:
    table = make()
    for mine, theirs in zip(epochs(3, "a"), epochs(3, "b"), strict=True):
        write(table, mine, 1)
        write(table, theirs, 2)
    assert {name: at.epoch for name, at in table.site.cache.known().streams.items()} == {
        "a": 2,
        "b": 2,
    }
    assert table.stream("a").audit().problems == ()


def test_commits_of_others_do_not_hide_a_position() -> None:
    table = make()
    write(table, epochs(1)[0], 1)
    table.append(pa.table({"id": [5]}))
    position = fresh(table).stream("app").position
    assert position is not None
    assert (position.epoch, position.end, position.version) == (0, "1", 1)


@pytest.mark.parametrize("keyed", [False, True])
def test_of_two_who_race_with_one_token_one_applies_it_and_both_get_its_result(
    *, keyed: bool
) -> None:
    """INV-09: the second had staged its rows already when the first was decided."""
    table = make(record_key=["id"] if keyed else [])
    other = fresh(table)
    token = epochs(1)[0]
    stream = other.stream("app")
    with stream.writer_of(token, "append", on_conflict="raise", on_duplicate="raise") as late:
        late.write(pa.table({"id": [1, 2]}))
        first = write(table, token, 1, 2)
    assert (late.result.version, late.result.instant) == (first.version, first.instant)
    assert table.scan().count() == 2
    assert table.timeline.pending == ()
    assert table.verify().notes == (), "the files of the second are gone"


@pytest.mark.parametrize("keyed", [False, True])
def test_of_two_who_race_with_other_offsets_the_second_is_refused(*, keyed: bool) -> None:
    table = make(record_key=["id"] if keyed else [])
    late = fresh(table).stream("app").writer("append", after=None, end="2")
    late.__enter__()
    late.write(pa.table({"id": [1, 2]}))
    write(table, Token("app", 0, "", "1"), 1)
    with pytest.raises(EpochRewoundError):
        late.__exit__(None, None, None)
    assert table.scan().count() == 1
    assert table.timeline.pending == ()
    assert table.verify().notes == ()


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
    table = make()
    stream = table.stream("moved")
    stream.begin_at(epoch=41, end="41")
    write(table, Token("moved", 42, "41", "42"), 1)
    with refused(EpochRewoundError):
        stream.begin_at(epoch=7, end="7")
    assert stream.audit().problems == ()


@pytest.mark.parametrize("kind", ["crash_before", "crash_after"])
def test_an_epoch_is_applied_once_wherever_its_writer_dies(kind: str) -> None:
    """INV-09: at every storage call; then another process sends the epoch again."""
    for nth in range(1, 100):
        table = make()
        site = table.site
        tokens = epochs(2)
        write(table, tokens[0], 0)
        faulty = FaultStore(site.store, [Fault(kind, nth=nth)])
        dying = Table(Site(faulty, site.ports, StateCache(faulty, site.ports), site.lock))
        try:
            write(dying, tokens[1], 1)
        except SimulatedCrashError:
            ended = False
        else:
            ended = True
        again = write(fresh(table), tokens[1], 1)
        table.rollback()
        assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [0, 1]
        assert again.version == next(
            e.version for e in table.stream("app").audit().epochs if e.epoch == 1
        )
        if ended:
            return
    pytest.fail("the epoch never ended")
