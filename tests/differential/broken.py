"""Tables and services that leave out one rule each: what histories must find, or they find nothing.

Each is the real code with one narrow thing replaced while a history runs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from plait.arrow import bucket_operations as steps
from plait.arrow import existing, merge
from plait.arrow.bucket_operations import BucketOperations
from plait.arrow.merge import DuplicateRule, Flags, Indices, Round
from plait.arrow.staging import ArrowStaging
from plait.definition.policy import FILE_GROUP, KEY
from plait.interop import delta_actions
from plait.interop.iceberg import IcebergPublisher
from plait.model.changes import MASKED
from plait.model.decision import SCOPE_PARTITIONS, SCOPE_TABLE, ReadSet
from plait.model.instant import Operation
from plait.read import changed
from plait.read.changed import Changed
from plait.repush import swap
from plait.repush.follow import _Replay
from plait.services.index.publish import WrittenRun
from plait.services.maintenance import archive, replay, restore
from plait.services.maintenance.rewrite import FollowMasks
from plait.timeline import paths
from plait.txn import carry, commit, conflict, key_window, refusal, tokens, transaction
from plait.txn.carry import FollowRows, HiddenRows
from plait.txn.conflict import Judge
from plait.txn.conflict_checker import ConflictChecker
from plait.txn.keys import KeyOverlap, Keys
from plait.write import parts
from plait.write.parts import WriteParts
from plait.write.transaction import Transaction
from plait.write.writer import Writer
from tests.differential.draw import ROUND, draw
from tests.differential.kinds import (
    draw_expiring,
    draw_indexing,
    draw_moving,
    draw_publishing,
    draw_removals,
    draw_repushing,
)
from tests.differential.program import CHANGE, Do, History, Row, Shape, Where, Write
from tests.differential.shrink import Drawing
from tests.differential.upkeep import UPKEEP, draw_upkeep
from tests.support.left_out import Make, instead, overlooks


@dataclass(frozen=True, slots=True)
class Broken:
    """One rule left out: where, and what stands there instead."""

    name: str
    places: tuple[tuple[Any, str], ...]
    make: Make
    seed: int
    """The first that finds it, when this was written."""
    promises: frozenset[str]
    """What is seen of it."""
    drawing: Drawing = draw
    within: int = ROUND
    """So many histories are tried from the first on, or from one that is known to find it on."""
    histories: tuple[History, ...] = ()
    """Two clients that show it by one switch: for a rule that few seeds need."""

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        """Put the fault in for a while."""
        kept = [(owner, name, vars(owner)[name]) for owner, name in self.places]
        for owner, name, real in kept:
            setattr(owner, name, self.make(real))
        try:
            yield
        finally:
            for owner, name, real in kept:
                setattr(owner, name, real)


def _as_staged(_: Any) -> Any:
    return lambda _self, staged, _head, _rewrites: staged


def _constant(value: object) -> Make:
    """Put a value in the place of a value."""
    return lambda _: value


# --- the three of which promises did not hold ------------------------------------------------


def _claims_of(*, named: bool, strict: bool, lone: bool = False) -> Make:
    """Claim keys that were looked up only where a read is named, or the table is strict.

    ``lone``: the only part of a writer, which has step 0, claims as it should.
    """

    def make(real: Any) -> Any:
        def plan_of(order: Any, table: Any, *args: Any, **kwargs: Any) -> Any:
            plan = real(order, table, *args, **kwargs)
            if lone and plan.step == 0:
                return plan
            counts = (named and order.read_set is not None) or (
                strict and table.isolation == "serializable"
            )
            return replace(plan, claims=plan.claims and counts)

        return plan_of

    return make


def _only_where_files_are(real: Any) -> Any:
    def stage(self: Any, bucket: Any) -> Any:
        staged = real(self, bucket)
        if not self.existing.files(bucket):
            staged.lookups = None
        return staged

    return stage


# --- conflicts ---------------------------------------------------------------------------------


def _by_files(real: Any) -> Any:
    """Conflict only where both replaced or masked the same file."""

    def files(changes: Any) -> set[str]:
        return {*changes.removed["path"].to_pylist(), *changes.masked["path"].to_pylist()}

    def judged(self: Any, judge: Any, decision: Any, state: Any) -> Any:
        if not files(judge.changes) & files(decision.changes):
            return None
        return real(self, judge, decision, state)

    return judged


def _overwrites_blindly(real: Any) -> Any:
    def meeting(self: Any, scope: Any, buckets: Any, *theirs: Any) -> Any:
        wide = self.scope.kind in (SCOPE_TABLE, SCOPE_PARTITIONS)
        return None if wide else real(self, scope, buckets, *theirs)

    return meeting


def _by_keys(real: Any) -> Any:
    def cell(self: Any, theirs: Any) -> Any:
        policy = KEY if self.policy == FILE_GROUP else self.policy
        return real(replace(self, policy=policy), theirs)

    return cell


def _own_files_again(real: Any) -> Any:
    """Rebase without doing anything again."""

    def stage(self: Any, snapshot: Any, buckets: Any) -> Any:
        return real(self, snapshot, None) if buckets is None else self._status()

    return stage


def _forgets_its_read(real: Any) -> Any:
    def rebased(self: Any, version: Any, conflicts: Any) -> Any:
        return replace(real(self, version, conflicts), read_set=ReadSet(version))

    return rebased


def _retries_for_anybody(real: Any) -> Any:
    """Run an operation again that rests on a named read."""

    def allowed(self: Any, conflicts: Any) -> Any:
        redo = self.movers.redo
        return redo if redo is not None else real(self, conflicts)

    return allowed


def _ignores_commit_ids(real: Any) -> Any:
    def take_in(self: Any, decision: Any, *rest: Any) -> Any:
        return real(self, replace(decision, commit_id=None), *rest)

    return take_in


# --- rows --------------------------------------------------------------------------------------


def _replaces(real: Any) -> Any:
    """Take a key that is there for one to be replaced: nothing is unique by refusal."""

    def rule(plan: Any) -> DuplicateRule:
        found: DuplicateRule = real(plan)
        return DuplicateRule.REPLACE if found is DuplicateRule.REFUSE else found

    return rule


def _without_preimages(real: Any) -> Any:
    def judged(*met: Any) -> Changed:
        found: Changed = real(*met)
        kept = found.kinds != changed.CHANGE_TYPES.index(changed.PRE)
        return Changed(found.rows.filter(pa.array(kept)), found.kinds[kept])

    return judged


def _deletes_as_updates(real: Any) -> Any:
    def judged(*met: Any) -> Changed:
        found: Changed = real(*met)
        kinds = np.where(found.kinds == 3, np.int8(1), found.kinds)
        return Changed(found.rows, kinds.astype(np.int8))

    return judged


def _each_on_the_base(real: Any) -> Any:
    """Let the parts of a transaction not see those before them."""

    def stage(self: Any, part: Any, buckets: Any = None) -> None:
        kept = self.snapshot
        real(self, part, buckets)
        self.snapshot = kept

    return stage


def _commits_all_the_same(real: Any) -> Any:
    def leave(self: Any, kind: Any, error: Any, trace: Any) -> Any:
        if error is not None:
            with contextlib.suppress(Exception):
                real(self, None, None, None)
                return None
        return real(self, kind, error, trace)

    return leave


def _keeps_what_it_lost(real: Any) -> Any:
    """Report the version after the one that was won."""

    def commit_(self: Any, *args: Any, **how: Any) -> Any:
        found = real(self, *args, **how)
        return replace(found, version=found.version - 1)

    return commit_


def _loses_a_count(real: Any) -> Any:
    def commit_(self: Any, *args: Any, **how: Any) -> Any:
        found = real(self, *args, **how)
        stats = replace(found.stats, rows_deleted=0)
        return replace(found, stats=stats)

    return commit_


# --- services that undo --------------------------------------------------------------------------


def _forgets_masks(real: Any) -> Any:
    def changes(*args: Any) -> Any:
        return replace(real(*args), masked=MASKED.empty_table())

    return changes


def _contains_all(real: Any) -> Any:
    """Take what was undone for what is there."""
    found = real.__name__ == "contains" or None
    return lambda *_: found


def _empties_one_more(real: Any) -> Any:
    """Empty a slot too many: that decision is nowhere any more."""

    def empty_slots(handle: Any) -> Any:
        count = real(handle)
        handle.store.put(paths.slot(handle.cache.known().archive.last + 1), b"")
        return count

    return empty_slots


def _names_no_ids(real: Any) -> Any:
    return lambda applications, _ids: real(applications, ())


# --- removals, moves, indexes and repushes -------------------------------------------------------


def _absent_unsaid(real: Any) -> Any:
    """Leave out of the read set the keys that were not there."""
    return lambda self, names: real(replace(self, absent=None), names)


def _gone_unsaid(_: Any) -> Any:
    """Leave out of the write set the keys of rows that went."""
    return lambda self, names: self.rows.select(names).slice(0, 0)


def _all_stay(_: Any) -> Any:
    """Let a row compete that came before a removal of its key."""

    def last_removals(numbers: Indices, removes: Flags) -> tuple[Indices, Flags]:
        return np.full(int(numbers.max(initial=-1)) + 1, -1, dtype=np.int64), ~removes

    return last_removals


def _newer_left_out(real: Any) -> Any:
    """Forget the runs that others published meanwhile, and say that a build goes as far."""

    def beside(self: WrittenRun, manifest: Any, number: int) -> Any:
        whole = real(self, manifest, number)
        return replace(whole, runs=tuple(run for run in whole.runs if run.last <= self.run.last))

    return beside


def _whole_left_out(real: Any) -> Any:
    return lambda self, *given: replace(real(self, *given), whole={})


SERIAL, LOST = "serial order", "lost update"
ANY = frozenset[str]()
"""Of promises: whichever is broken."""
_COMES_WHILE_DELETED = History(
    Shape(isolation="serializable", partitioned=True),
    clients=(
        (Write(Do("delete_where", where=Where("id", ">", -1))),),
        (Write(Do("upsert", rows=((1, "y", 101, 3),))),),
    ),
    start=(Do("append", rows=((0, "x", 10, 1),)),),
)
"""A row comes, in a place of its own, while all rows are deleted by a predicate."""
_TYPES = ("cow", "mor")


def _two(table_type: str, one: Write, other: Write, *rows: Row, moves: bool = True) -> History:
    """Return a history of two clients, with a turn each, on a table with these rows."""
    shape = Shape(table_type=table_type, partitioned=moves, unique=moves)
    return History(shape, ((one,), (other,)), (Do("append", rows=rows),))


_HERE, _BESIDE = (0, "x", 10, 1), (1, "x", 20, 1)
_CAME_TWICE = tuple(
    _two(
        kind,
        Write(Do("upsert", rows=((0, "y", 101, 5),))),
        Write(Do("upsert", rows=((0, "z", 103, 5),))),
        _BESIDE,
    )
    for kind in _TYPES
)
_GOES_WHILE_READ = tuple(
    _two(
        kind,
        Write(Do("upsert", rows=((0, "y", 101, 5),), derive="sum"), read=True, named="scan"),
        Write(Do("delete_keys", rows=((0, "x", 103, 5),))),
        _HERE,
        _BESIDE,
    )
    for kind in _TYPES
)
_CHANGES_WHILE_REMOVED = tuple(
    _two(
        kind,
        Write(Do(CHANGE, rows=((0, "x", 101, 5), (1, "x", 102, 5)))),
        Write(Do("upsert", rows=((0, "x", 103, 5),))),
        _HERE,
        (2, "x", 20, 1),
        moves=False,
    )
    for kind in _TYPES
)
_TXN = transaction.OptimisticTransaction

BROKEN = (
    Broken(
        "keys that were looked up count only where a read is named",
        ((parts, "plan_of"),),
        _claims_of(named=True, strict=False),
        185,
        frozenset({SERIAL}),
    ),
    Broken(
        "a transaction that reads does not claim what it looked up",
        ((parts, "plan_of"),),
        _claims_of(named=False, strict=True, lone=True),
        138,
        frozenset({LOST}),
    ),
    Broken(
        "keys that were looked up count only where there were files",
        ((BucketOperations, "stage"),),
        _only_where_files_are,
        285,
        frozenset({SERIAL, LOST}),
    ),
    Broken(
        "conflicts by file instead of by key",
        ((ConflictChecker, "_conflict_with"),),
        _by_files,
        12,
        frozenset({"damage", "INV-08", SERIAL, LOST, "first committer wins", "snapshot effect"}),
    ),
    Broken(
        "no two commits ever share a key",
        ((Keys, "overlap"),),
        instead(KeyOverlap(known=True, hashes=np.zeros(0, dtype=np.uint64))),
        26,
        frozenset({LOST, SERIAL, "first committer wins"}),
    ),
    Broken(
        "under file_group only keys conflict",
        ((Judge, "_cell"),),
        _by_keys,
        402,
        frozenset({"first committer wins"}),
    ),
    Broken(
        "a rebase that does nothing again",
        ((ArrowStaging, "stage"),),
        _own_files_again,
        32,
        frozenset({"damage", "INV-08", SERIAL, "snapshot effect"}),
    ),
    Broken(
        "the read is forgotten after a rebase",
        ((commit.StagedChanges, "rebased"),),
        _forgets_its_read,
        585,
        frozenset({LOST, SERIAL}),
    ),
    Broken(
        "what rests on a read is run again by itself",
        ((commit.Commit, "_allowed"),),
        _retries_for_anybody,
        6,
        frozenset({LOST, SERIAL, "first committer wins"}),
    ),
    Broken(
        "nothing is asked of what lies between the read and the base",
        ((ConflictChecker, "earlier"),),
        instead([]),
        21,
        frozenset({LOST, SERIAL}),
    ),
    Broken(
        "predicates that were read reach nothing",
        ((Judge, "_has_read"),),
        instead(value=False),
        45,
        frozenset({SERIAL}),
    ),
    Broken(
        "predicates of an operation reach nothing new",
        ((Judge, "_reaches"),),
        instead(value=False),
        408,
        frozenset({SERIAL}),
        histories=(_COMES_WHILE_DELETED,),
    ),
    Broken(
        "an overwrite meets nobody",
        ((Judge, "meeting"),),
        _overwrites_blindly,
        31,
        frozenset({"damage", SERIAL, LOST, "INV-08", "snapshot effect", "first committer wins"}),
    ),
    Broken(
        "a commit id is not looked for in the window",
        ((ConflictChecker, "_take_in"),),
        _ignores_commit_ids,
        253,
        frozenset({"commit id", SERIAL}),
    ),
    Broken(
        "a time that was decided is used again",
        ((commit, "free_time"),),
        lambda _: lambda time, _taken: time,
        1,
        frozenset({"INV-03"}),
    ),
    Broken(
        "a new mask takes the place of the old one",
        ((existing, "union"),),
        lambda _: lambda _old, new: new,
        19,
        frozenset({"damage", "INV-08", SERIAL, "snapshot effect"}),
    ),
    Broken(
        "keys that are there are no obstacle",
        ((steps, "rule_of"),),
        _replaces,
        0,
        frozenset({SERIAL, "snapshot effect"}),
    ),
    Broken(
        "the ordering column is not asked",
        ((merge, "winners"),),
        lambda real: lambda order, first, _ranks: real(order, first, None),
        5,
        frozenset({SERIAL, "snapshot effect"}),
    ),
    Broken(
        "changes lack the rows as they were",
        ((changed, "_compared"),),
        _without_preimages,
        10,
        frozenset({"change feed"}),
    ),
    Broken(
        "changes take a row that is gone for one that changed",
        ((changed, "_compared"),),
        _deletes_as_updates,
        4,
        frozenset({"change feed"}),
    ),
    Broken(
        "parts of a transaction do not see each other",
        ((WriteParts, "stage"),),
        _each_on_the_base,
        1,
        frozenset({"damage", "INV-08", "one version", SERIAL, "snapshot effect"}),
    ),
    Broken(
        "a writer whose caller failed commits",
        ((Writer, "__exit__"), (Transaction, "__exit__")),
        _commits_all_the_same,
        4,
        frozenset({"INV-10"}),
    ),
    Broken(
        "a commit reports the version before its own",
        ((_TXN, "commit"),),
        _keeps_what_it_lost,
        0,
        frozenset({"INV-10"}),
    ),
    Broken(
        "deleted rows are not counted",
        ((_TXN, "commit"),),
        _loses_a_count,
        1,
        frozenset({SERIAL, "snapshot counts"}),
    ),
    Broken(
        "what a writer hid stays where it was",
        ((FollowRows, "carry"),),
        _as_staged,
        52,
        frozenset({"damage", "INV-08", SERIAL, "snapshot effect"}),
    ),
    Broken(
        "a compaction brings back what was hidden meanwhile",
        ((FollowMasks, "carry"),),
        _as_staged,
        65,
        frozenset({"damage", "INV-08", "INV-14"}),
    ),
    Broken(
        "a restore forgets which rows were hidden",
        ((restore, "changes_between"),),
        _forgets_masks,
        3,
        frozenset({"restore"}),
        draw_upkeep,
        UPKEEP,
    ),
    Broken(
        "a restore undoes what its plan did not show",
        ((restore, "_require_shown"),),
        instead(value=None),
        3,
        frozenset({"restore shown"}),
        draw_upkeep,
        UPKEEP,
    ),
    Broken(
        "a writer that meets a restore goes on",
        ((Judge, "_cell"),),
        overlooks(Operation.RESTORE),
        39,
        frozenset({"writers meet a restore"}),
        draw_upkeep,
        UPKEEP,
    ),
    Broken(
        "a commit id that was undone is reported as applied",
        ((refusal, "contains"),),
        _contains_all,
        19,
        frozenset({"INV-16"}),
        draw_upkeep,
        UPKEEP,
    ),
    Broken(
        "an epoch that was undone is reported as applied",
        ((tokens, "contains"), (tokens, "find_undone_position"), (tokens, "require_contained")),
        _contains_all,
        33,
        frozenset({"INV-16"}),
        draw_upkeep,
        UPKEEP,
    ),
    Broken(
        "a replay does not record the commit ids",
        ((replay, "Replayed"),),
        _names_no_ids,
        1,
        frozenset({"replay"}),
        draw_upkeep,
        UPKEEP,
    ),
    Broken(
        "an archive loses a decision",
        ((archive, "empty_slots"),),
        _empties_one_more,
        5,
        frozenset({"damage"}),
        draw_upkeep,
        UPKEEP,
    ),
    Broken(
        "a row that was removed is not in the write set",
        ((Round, "removed"),),
        _gone_unsaid,
        0,
        frozenset({"first committer wins"}),
        draw_removals,
        0,
        histories=_CHANGES_WHILE_REMOVED,
    ),
    Broken(
        "keys to remove that were not there do not count as read",
        ((Round, "unchanged"),),
        _absent_unsaid,
        0,
        ANY,
        draw_removals,
        200,
    ),
    Broken(
        "a row that came before a removal of its key stays",
        ((merge, "last_removals"),),
        _all_stay,
        0,
        ANY,
        draw_removals,
        200,
    ),
    Broken(
        "what came into another partition is nobody's business",
        ((Judge, "in_other_partitions"),),
        instead(frozenset()),
        0,
        frozenset({"INV-08"}),
        draw_moving,
        0,
        histories=_CAME_TWICE,
    ),
    Broken(
        "keys are compared in one partition only",
        ((Keys, "overlap_elsewhere"),),
        lambda _: lambda self, *given: self.overlap(*given[:3]),
        0,
        frozenset({"INV-08"}),
        draw_moving,
        0,
        histories=_CAME_TWICE,
    ),
    Broken(
        "a row that was read may be gone from another partition",
        ((Judge, "counts_removals"),),
        _constant(value=False),
        0,
        frozenset({LOST}),
        draw_moving,
        0,
        histories=_GOES_WHILE_READ,
    ),
    Broken(
        "a writer does not join its masks with those of an expiry",
        ((HiddenRows, "join"),),
        instead(value=None),
        0,
        ANY,
        draw_expiring,
        120,
    ),
    Broken(
        "a writer's masks leave out what is hidden at the head",
        ((carry, "union"),),
        lambda _: lambda _old, new: new,
        0,
        ANY,
        draw_expiring,
        120,
    ),
    Broken(
        "a writer that copied rows does nothing again after an expiry",
        ((conflict, "COW"),),
        _constant("none"),
        0,
        ANY,
        draw_expiring,
        120,
    ),
    Broken(
        "a build of an index forgets what others published meanwhile",
        ((WrittenRun, "beside"),),
        _newer_left_out,
        405,
        ANY,
        draw_indexing,
        160,
    ),
    Broken(
        "nobody reads buckets of which a decision tells no keys",
        ((key_window._Adding, "_with_keys"),),
        _whole_left_out,
        388,
        ANY,
        draw_indexing,
        160,
    ),
    Broken(
        "runs are used after rows came back that they do not have",
        ((key_window, "_MOVING"),),
        _constant(()),
        1243,
        ANY,
        draw_indexing,
        160,
    ),
    Broken(
        "a writer commits files that lie as they did before a swap",
        ((Judge, "_cell"),),
        overlooks(Operation.REPUSH),
        0,
        ANY,
        draw_repushing,
        120,
    ),
    Broken(
        "a swap does not ask what was committed since the last round",
        ((swap, "changing_operations"),),
        instead(frozenset()),
        580,
        ANY,
        draw_repushing,
        120,
    ),
    Broken(
        "a round of a repush takes the rows that came and not those that went",
        ((_Replay, "_remove"),),
        instead(0),
        0,
        ANY,
        draw_repushing,
        120,
    ),
    Broken(
        "readers of a Delta log are not told which rows are hidden",
        ((delta_actions, "_with_vector"),),
        lambda _: lambda action, _file: action,
        1,
        frozenset({"INV-17"}),
        draw_publishing,
        24,
    ),
    Broken(
        "readers of Iceberg are not told which rows are hidden",
        ((IcebergPublisher, "_hidden"),),
        instead([]),
        1,
        frozenset({"INV-17"}),
        draw_publishing,
        24,
    ),
)
