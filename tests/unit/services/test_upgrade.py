"""Which features a table may have changes in one decision, beside its readers (RFC 0029)."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable

import pyarrow as pa
import pytest

from plait import FeatureError, OptionError, Table
from plait.definition.features import FEATURES, KNOWN, VERSIONS, closed, usable
from plait.model.decision import CommitResult
from plait.model.document import seal_record
from plait.services.definition.alter import Alter
from plait.services.definition.upgrade import FeaturePlan
from plait.state.checkpoint import load_newest
from plait.state.state import usable_features
from plait.timeline import paths
from tests.support import build
from tests.support.build import LITTLE, again, uri_of
from tests.support.forge import rewrite

BASE = list(FEATURES)
ALL = closed(KNOWN)


def rows(*ids: int) -> pa.Table:
    """Return rows of far days."""
    days = pa.array([dt.date(2999, 1, 1)] * len(ids), pa.date32())
    return pa.table({"id": pa.array(ids, pa.int64()), "day": days})


@pytest.fixture
def t() -> Table:
    how = {"table_type": "mor", "buckets": 2, "properties": LITTLE}
    return build.make("id bigint, day date", **how, upsert=rows(1, 2))


def needs(t: Table) -> tuple[set[str], set[str]]:
    """Return what a client must know that opens the table now, beside what every client knows."""
    state = load_newest(t._handle.store)
    decision = t._handle.cache.timeline.find(t.version)
    assert decision is not None
    assert (
        state is None
        or state.version < t.version
        or state.writer_features == (decision.writer_features)
    )
    return set(decision.features) - {*FEATURES, "writer-features-1"}, set(decision.writer_features)


def test_what_a_later_release_brings_is_not_used_until_an_upgrade() -> None:
    """Every client that can open the table knows what it may use: older ones lose nothing."""
    assert "later-1" not in usable((), None, "compatible")
    assert usable(("ttl-1",), None, "never") == ("ttl-1",)
    assert set(usable((), None, "always")) == set(KNOWN)
    assert set(usable((), ("ttl-1",), "always")) == set(KNOWN)
    assert usable(("archive-1",), ("ttl-1",), "compatible") == ("ttl-1",)


NEEDS: dict[str, tuple[Callable[[Table], object], str]] = {
    "savepoint": (lambda t: t.versions.savepoint("here"), "restores-1"),
    "ttl": (lambda t: t.alter.set_ttl("day 1d"), "ttl-1"),
    "rows.written": (lambda t: t.alter.set({"rows.written": "on"}), "rows-written-1"),
    "sink": (lambda t: t.replicas.add(f"eu={uri_of(t)}-eu"), "replicas-1"),
    "default": (lambda t: t.alter.columns().add("n", "int", default=7).commit(), "defaults-1"),
    "repush": (lambda t: t.layout.repush(buckets=4), "repush-1"),
    "compaction": (lambda t: t.upsert(rows(1)) and t.maintenance.compact(full=True), "row-maps-1"),
    "archive": (lambda t: t.maintenance.archive(), "archive-1"),
}


@pytest.mark.parametrize("name", NEEDS)
def test_what_a_table_may_not_use_is_refused_by_name_and_nothing_is_written(
    t: Table, name: str
) -> None:
    call, feature = NEEDS[name]
    t.alter.downgrade(to=BASE)
    with pytest.raises(FeatureError) as refused:
        call(t)
    assert refused.value.features == [feature]
    assert needs(t) == (set(), set())
    assert t.inspect.writers() == ()
    assert t.check.verify().clean
    t.alter.upgrade(features=[feature])
    call(t)


def test_who_may_turn_features_on_is_an_option(t: Table) -> None:
    assert usable_features(t._handle.cache.known()) == closed(VERSIONS[1]), "without a list"
    assert t.alter.upgrade(dry_run=True).turned_on == ()
    assert t.alter.upgrade() is None
    t.alter.set({"features.upgrade": "never"})
    with pytest.raises(FeatureError):
        t.versions.savepoint("here")
    assert t.alter.upgrade(dry_run=True).turned_on == ALL
    t.alter.upgrade(features=["restores-1"])
    t.versions.savepoint("here")
    t.versions.drop_savepoint("here")
    t.alter.set({"features.upgrade": "compatible"})
    t.alter.downgrade(to=BASE)
    t.alter.set({"features.upgrade": "always"})
    t.versions.savepoint("here")
    with pytest.raises(OptionError):
        t.alter.downgrade(to=BASE)


def test_upkeep_leaves_out_what_the_table_may_not_use(t: Table) -> None:
    t.alter.downgrade(to=BASE)
    t.upsert(rows(1))
    report = t.maintenance.optimize()
    assert report.compaction is None
    assert t.alter.set({"compact": "inline"}).version == t.version
    version = t.upsert(rows(1)).version
    assert t.version == version


def test_writers_must_know_what_was_turned_on_and_readers_what_is_used(t: Table) -> None:
    """An upgrade stops no reader; the first use of a feature does."""
    t.alter.downgrade(to=BASE)
    t.alter.upgrade(features=["ttl-1", "restores-1"])
    assert needs(t) == (set(), {"restores-1", "ttl-1"})
    t.upsert(rows(3))
    assert needs(t) == (set(), {"restores-1", "ttl-1"})
    t.versions.savepoint("here")
    assert needs(t) == ({"restores-1"}, {"ttl-1"})


def test_plans_and_what_is_decided_already_write_nothing_and_no_reader_notices(t: Table) -> None:
    """INV-04: no row changes, and older versions stay as they are."""
    version, before, scan = t.version, t.scan().to_arrow(), t.scan()
    t.alter.upgrade(dry_run=True)
    assert t.alter.downgrade(to=BASE, dry_run=True).turned_off == ALL
    assert t.alter.downgrade(to=1, dry_run=True).turned_off == ()
    assert t.alter.downgrade(to=1) is None
    for unknown in (["branches-9"], 9, ["ttl"]):
        with pytest.raises(OptionError):
            t.alter.downgrade(to=unknown)
    with pytest.raises(OptionError):
        t.alter.upgrade(features=["branches-9"])
    assert t.version == version
    t.alter.downgrade(to=["ttl-1"])
    assert t.alter.downgrade(to=["ttl-1"]) is None
    assert t.alter.upgrade(features=["ttl-1"]) is None
    t.alter.upgrade()
    for each in (scan, t.scan(), t.scan(version=version)):
        assert each.to_arrow() == before
    assert t.changes(since=version).to_arrow().num_rows == 0


# --- what uses a feature ------------------------------------------------------------------------


USES: dict[str, tuple[str, Callable[[Table], object], Callable[[Table], object]]] = {
    "ttl-1": ("time to live", lambda t: t.alter.set_ttl("day 1d"), lambda t: t.alter.set_ttl(None)),
    "rows-written-1": (
        "rows.written",
        lambda t: t.alter.set({"rows.written": "on"}),
        lambda t: t.alter.set({"rows.written": "off"}),
    ),
    "replicas-1": (
        "eu",
        lambda t: t.replicas.add(f"eu={uri_of(t)}-eu"),
        lambda t: t.replicas.remove("eu"),
    ),
    "restores-1": (
        "here",
        lambda t: t.versions.savepoint("here"),
        lambda t: t.versions.drop_savepoint("here"),
    ),
}


@pytest.mark.parametrize("feature", USES)
def test_a_feature_goes_when_nothing_uses_it_any_more(t: Table, feature: str) -> None:
    """INV-11: and whoever opens the table then, by its checkpoint, need not know it."""
    what, use, drop = USES[feature]
    use(t)
    if feature != "replicas-1":
        t.upsert(rows(5))
    plan = t.alter.downgrade(to=BASE, dry_run=True)
    assert [each.feature for each in plan.uses] == [feature]
    assert what in plan.uses[0].what
    with pytest.raises(FeatureError) as refused:
        t.alter.downgrade(to=BASE)
    assert refused.value.features == [feature]
    drop(t)
    t.alter.downgrade(to=BASE)
    t.delete(keys=pa.table({"id": [1]}))
    assert needs(t) == (set(), set())
    state = load_newest(t._handle.store)
    assert state is not None
    assert state.version == t.version - 1
    body = t._handle.store.find(paths.checkpoint(state.version)) or b""
    assert feature not in json.loads(body)["state"]
    assert t.check.verify().clean


@pytest.mark.parametrize("execute", [Alter.upgrade, Alter.downgrade])
def test_the_plan_of_a_downgrade_does_the_same_whichever_call_executes_it(
    t: Table, execute: Callable[[Alter, FeaturePlan], CommitResult | None]
) -> None:
    """INV-11: a checkpoint stands above decisions that older clients cannot read."""
    t.upsert(rows(5))
    plan = t.alter.downgrade(to=BASE, dry_run=True)
    done = execute(t.alter, plan)
    assert done is not None
    state = load_newest(t._handle.store)
    assert state is not None
    assert state.version == done.version == t.version


def test_a_restore_and_an_archive_cannot_be_given_up(t: Table) -> None:
    """What counts as committed rests on the one, and old decisions on the other (INV-05)."""
    t.upsert(rows(3))
    t.versions.restore(version=1)
    t.alter.set({"archive.keep": "1", "checkpoint.interval": "1"})
    for number in range(6):
        t.upsert(rows(number))
    t.maintenance.archive()
    assert {each.feature for each in t.alter.downgrade(to=BASE, dry_run=True).uses} == {
        "restores-1",
        "archive-1",
    }
    with pytest.raises(FeatureError):
        t.alter.downgrade(to=BASE)
    assert t.alter.downgrade(to=["restores-1", "archive-1"]) is not None
    t.upsert(rows(1))
    assert needs(t)[0] == {"restores-1", "archive-1"}


def test_a_repush_is_given_up_when_no_version_and_no_file_is_left_of_it(t: Table) -> None:
    t.layout.repush(buckets=4)
    uses = t.alter.downgrade(to=BASE, dry_run=True).uses
    assert {each.feature for each in uses} == {"repush-1"}
    assert any("layout" in each.what for each in uses)
    assert any("files in repush-" in each.what for each in uses)
    with pytest.raises(FeatureError):
        t.alter.downgrade(to=BASE)
    for number in range(4):
        t.upsert(rows(number, 10 + number, 20 + number, 30 + number))
    t.maintenance.compact(full=True)
    for _ in range(3):
        t._handle.ports.clock.sleep(0.01)
        t.maintenance.clean()
        t.upsert(rows(1))
    t.maintenance.compact(full=True)
    t.maintenance.clean()
    t.maintenance.clean()
    assert t.alter.downgrade(to=BASE, dry_run=True).uses == ()
    before = t.scan().to_arrow().sort_by("id")
    t.alter.downgrade(to=BASE)
    assert needs(t) == (set(), set())
    other = again(t)
    assert other.scan().to_arrow().sort_by("id") == before
    assert other._handle.cache.known().table.former == ()
    assert other.check.verify().clean


@pytest.mark.parametrize("large", [False, True], ids=["small vectors", "vectors in files"])
def test_a_downgrade_is_planned_after_rows_of_a_repush_were_hidden_and_shown_again(
    t: Table, monkeypatch: pytest.MonkeyPatch, *, large: bool
) -> None:
    """INV-04: a deletion vector is in its decision, in a file, or taken back."""
    if large:
        monkeypatch.setattr("plait.files.deletion.INLINE_BYTES_MAX", 1)
    t.upsert(rows(*range(3, 40)))  # a file without a row is taken out, not masked
    t.layout.repush(buckets=4)
    shown = t.version
    acts = (
        lambda: t.upsert(rows(1)),
        lambda: t.delete(where="id = 2"),
        lambda: t.versions.restore(version=shown),
        lambda: t.maintenance.compact(full=True),
    )
    for act in acts:  # each plan looks at every file that is named by then
        act()
        assert {"repush-1"} <= {
            each.feature for each in t.alter.downgrade(to=BASE, dry_run=True).uses
        }
        assert t._handle.cache.known().folded(t._handle.store).paths().null_count == 0


def test_layouts_and_defaults_are_named_with_their_remedy() -> None:
    """Also that keys are unique in the table, which never changes."""
    laid = build.make(
        "a bigint, b bigint, at timestamp",
        record_key=["a", "b"],
        partition_by=["day(at)"],
        bucket_by="a",
    )
    laid.alter.columns().add("n", "int", default=7).commit()
    uses = {each.feature: each for each in laid.alter.downgrade(to=BASE, dry_run=True).uses}
    assert set(uses) == {"bucket-by-1", "partition-fields-1", "defaults-1"}
    assert all(each.remedy for each in uses.values())
    assert laid.alter.downgrade(to=list(uses), dry_run=True).uses == ()
    unique = build.make("id bigint", unique="table")
    (use,) = unique.alter.downgrade(to=BASE, dry_run=True).uses
    assert (use.feature, use.what) == ("unique-table-1", "unique='table', which never changes,")
    assert "new table" in use.remedy


def test_a_rule_that_an_older_schema_has_is_named_with_its_remedy(t: Table) -> None:
    """The older schema stays, so it is of no use to take the rule out of the newest one."""
    change = (
        t.alter.columns()
        .add("w", "bigint")
        .generate("w", "nullif(id, id)")
        .add_check("some", "true")
    )
    change.commit()
    t.alter.columns().generate("w", None).drop_check("some").commit()
    uses = t.alter.downgrade(to=BASE, dry_run=True).uses
    assert {each.feature for each in uses} == {"checks-1", "generated-columns-1"}
    assert all("new table" in each.remedy and "schema 1" in each.what for each in uses)


# --- beside writers -----------------------------------------------------------------------------


def older_writer(t: Table, *, knows: list[str] | None) -> object:
    """Begin a write of a client that knows fewer features, or does not say."""
    writer = again(t).writer("upsert").__enter__()
    writer.write(rows(9))
    (record,) = [p for p in t._handle.store.list(paths.PENDING) if p.path.endswith(".requested")]
    document = json.loads(t._handle.store.find(record.path) or b"")
    document.pop("features")
    del document["seal"]
    if knows is None:  # it is older than seals, too
        t._handle.store.put(record.path, json.dumps(document).encode())
    else:
        t._handle.store.put(record.path, seal_record(record.path, {**document, "features": knows}))
    return writer


def test_an_upgrade_is_refused_while_an_older_writer_is_live(t: Table) -> None:
    t.alter.downgrade(to=BASE)
    writer = older_writer(t, knows=[*FEATURES, "writer-features-1", "ttl-1"])
    assert t.alter.upgrade(features=["ttl-1"], dry_run=True).older == ()
    with pytest.raises(FeatureError) as refused:
        t.alter.upgrade()
    assert len(refused.value.live) == 1
    assert t.alter.upgrade(dry_run=True).older[0].pid
    writer.__exit__(None, None, None)  # type: ignore[attr-defined]  # a writer
    assert t.alter.upgrade() is not None


@pytest.mark.parametrize("knows", [None, BASE])
def test_a_downgrade_is_refused_while_a_live_writer_does_not_know_of_lists(
    t: Table, knows: list[str] | None
) -> None:
    """It could use again what goes: its publisher compares nothing."""
    writer = older_writer(t, knows=knows)
    with pytest.raises(FeatureError) as refused:
        t.alter.downgrade(to=BASE)
    assert len(refused.value.live) == 1
    writer.__exit__(None, None, None)  # type: ignore[attr-defined]  # a writer
    assert t.alter.downgrade(to=BASE) is not None


def test_a_live_writer_that_knows_of_lists_commits_beside_a_downgrade(t: Table) -> None:
    with t.writer("upsert") as writer:
        writer.write(rows(9))
        again(t).alter.downgrade(to=BASE)
    assert t.scan().to_arrow().num_rows == 3


def test_a_first_use_that_was_planned_before_a_downgrade_is_refused_after_it(t: Table) -> None:
    """And a savepoint that was first is found by the downgrade that lost its slot."""
    t.upsert(rows(*range(20)))
    t.upsert(rows(*range(5)))
    plan = t.maintenance.compact(full=True, dry_run=True)
    assert plan.tasks
    other = again(t)
    other.alter.downgrade(to=BASE)
    with pytest.raises(FeatureError):
        t.maintenance.compact(plan)
    assert needs(other) == (set(), set())
    t.alter.upgrade()
    assert t.alter.downgrade(to=BASE, dry_run=True).uses == ()
    other.versions.savepoint("here")
    with pytest.raises(FeatureError):
        t.alter.downgrade(to=BASE)


def test_a_table_of_a_newer_plait_is_not_changed(t: Table) -> None:
    rewrite(
        t._handle.store,
        t.version,
        lambda d: d.update(
            features=[*d["features"], "writer-features-1"], writer_features=["checks-9"]
        ),
    )
    older = again(t)
    for call in (
        lambda: older.alter.downgrade(to=BASE),
        lambda: older.alter.downgrade(to=["ttl-1"]),
    ):
        with pytest.raises(Exception, match="checks-9"):
            call()
