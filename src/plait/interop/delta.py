"""Publish versions of a table to its Delta log: in order, each once, by whoever comes first.

What is published is a function of the table alone (``delta_actions.py``), and ``put_if_absent`` of
the next number decides who was first (``delta_log.py``). So any number of publishers may run at
once, and may die anywhere: what one of them did not finish, the next one finds and goes on with.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from plait.errors import CorruptMetadataError
from plait.interop.delta_actions import (
    FEATURES,
    VECTORS,
    DeltaSchema,
    Json,
    add_action,
    protocol,
    remove_action,
    table_action,
    vector_copy,
)
from plait.interop.delta_log import (
    DIRECTORY,
    DeltaLog,
    ForeignActions,
    Mark,
    Tip,
    read_foreign,
    vector_identity,
)
from plait.interop.publisher import (
    CaughtUp,
    DecidedVersion,
    Foreign,
    FormatPublisher,
    KeptRange,
    PublishedVersion,
    commits_since,
    was_unpublished,
)
from plait.model.plan import CHANGED
from plait.model.texts import is_text
from plait.state.delta import changed_since
from plait.state.state import TableState
from plait.storage.port import Store

TARGET: Final = "delta"
"""The format as the property ``publish`` names it."""
ENGINE: Final = "plait"
BEHIND_MAX: Final = 1_000
"""The most versions that are published one by one; further behind, they are left out."""
INLINE_FILES_MAX: Final = 10_000
"""The most live files that a client writes out beside its commit: for a checkpoint, to leave
versions out, or to undo what others wrote. Of more, services do it."""
FOREIGN_BYTES_MAX: Final = 64 << 20
"""The most bytes of foreign commits that are read; of more, the log is brought back by a leap."""
_VECTORS_BYTES_MAX: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class _Draft:
    """A commit that is to be put at the end of the log."""

    mark: Mark
    actions: Sequence[Json]
    undone: Foreign | None = None


@dataclass(frozen=True, slots=True)
class _Change:
    """A version that is to be published, and the files that it changed."""

    commit: DecidedVersion
    files: pa.Table
    """CHANGED: each before and after."""
    foreign: ForeignActions | None
    """What others wrote before it, which it undoes."""


class DeltaPublisher(FormatPublisher[Tip]):
    """Brings the Delta log of one table up to date; remembers where the log ends."""

    target = TARGET
    directory = DIRECTORY
    title = "a Delta log"

    def __init__(self, store: Store, identity: str) -> None:
        """Take the table's store and its identity; nothing is read yet."""
        super().__init__(store, identity)
        self._log = DeltaLog(store, identity)

    def _find_end(self, is_ours: Callable[[PublishedVersion], bool]) -> Tip:
        return self._log.look(is_ours)

    def _is_of(self, state: TableState, found: PublishedVersion) -> bool:
        known = isinstance(found, Mark) and found.features <= FEATURES
        return known and super()._is_of(state, found)

    def _is_large(self, state: TableState) -> bool:
        return state.files > INLINE_FILES_MAX

    def _settle(self, state: TableState, end: Tip) -> None:
        """Write a checkpoint, if readers would read many commits without one."""
        interval = state.table.options.count("checkpoint.interval")
        if end.ours is not None and self._log.checkpoint_lag(end.number) >= interval:
            self._log.put_checkpoint(end.number, self._all(state, end.ours))

    def _guess(self, state: TableState) -> Tip | None:
        """Look for the version before in the place where it usually is: one read, no listing."""
        number = state.version - 1
        mark = self._log.mark_at(number) if number >= 0 else None
        if mark is None or mark.version != number or not self._is_of(state, mark):
            return None
        return Tip(number, mark)

    def _publish(
        self, state: TableState, tip: Tip, progress: CaughtUp, *, whole: bool
    ) -> Iterator[Tip]:
        mark = tip.ours
        commits = commits_since(self._store, state, -1 if mark is None else mark.version)
        if mark is None and state.version == 0 and tip.number == tip.checkpoint == -1:
            first = commits[0]
            began = self._mark(first, _schema_at(state, first.schema_id).features, 0)
            draft = _Draft(began, self._header(state, began))
            yield from _one(self._put(state, tip, draft, progress))
            return
        strange = tip.checkpoint > tip.number + 1  # a reader would start from it
        leaps = mark is None or strange or self._must_leap(state, mark, commits)
        if not whole and self._is_large(state) and (leaps or tip.foreign):
            return  # all live files would have to be written out
        foreign = None if leaps else self._foreign(tip)
        if mark is None or leaps or (tip.foreign and foreign is None):
            commits = commits or commits_since(self._store, state, state.version - 1)
            yield from _one(self._leap(state, tip, commits[-1], progress))
            return
        changed = CHANGED.empty_table()
        if commits:
            times = {each.version: each.completed_ms for each in commits}
            changed = changed_since(self._store, state, times)
        if tip.foreign:
            # The version before them again, to undo them. So the version of a number follows from
            # the commits below it, whatever newest version a publisher knows: each writes the same
            # checkpoint ahead of its commit, and none that somebody else's commit would belie.
            commits = [*commits_since(self._store, state, mark.version - 1)[:1], *commits]
        for commit in commits:
            files = changed.filter(pc.equal(changed["at"], commit.version))
            then = self._step(state, tip, mark, _Change(commit, files, foreign), progress)
            if then is None or then.ours is None:
                return
            tip, mark, foreign = then, then.ours, None
            yield then

    def _must_leap(self, state: TableState, mark: Mark, missing: Sequence[DecidedVersion]) -> bool:
        """Tell whether to leave versions out: too many, unreadable, or not published when decided.

        While the property named no Delta, nothing refused what a log cannot say.
        """
        if len(missing) > BEHIND_MAX or mark.version < state.horizon:
            return True
        return was_unpublished(self._store, missing, TARGET)

    def _mark(
        self,
        commit: DecidedVersion,
        features: frozenset[str],
        number: int,
        before: Mark | None = None,
    ) -> Mark:
        start, start_ms = (
            (number, commit.completed_ms) if before is None else (before.start, before.start_ms)
        )
        return Mark(
            self._identity,
            commit.version,
            commit.instant,
            commit.schema_id,
            features,
            start,
            start_ms,
            max(commit.completed_ms, 0 if before is None else before.time_ms + 1),
        )

    def _header(self, state: TableState, mark: Mark) -> tuple[Json, Json]:
        schema = _schema_at(state, mark.schema_id)
        table = table_action(
            self._identity, schema, mark.features, start=mark.start, start_ms=mark.start_ms
        )
        return protocol(mark.features), table

    def _trim(
        self, state: TableState, kept: KeptRange, refresh: Callable[[], TableState]
    ) -> list[str]:
        """Write a checkpoint of the first version that stays; then the older files go."""
        horizon = kept.horizon
        tip, state = self.look(state, refresh)
        if tip.ours is None or tip.ours.version < horizon:
            return []
        ended = tip.number - len(tip.foreign)
        first = self._first_kept(state, horizon, ended - (tip.ours.version - horizon))
        if first is None:
            return []
        number, mark = first
        if not self._log.is_oldest(number):
            self._log.put_checkpoint(number, self._all(state, mark))
        return self._log.trim(number)

    def _first_kept(self, state: TableState, horizon: int, likely: int) -> tuple[int, Mark] | None:
        """Return the commit from which on the log shows no version below a horizon.

        Args:
            state: the table.
            horizon: the oldest version that stays readable.
            likely: its number, unless something was undone since, which shows its version again.
        """
        commits, found = self._log.commits(), None
        start = bisect_left(commits, likely)
        for number in commits[start:]:
            mark = self._log.mark_at(number)
            if mark is not None and mark.version >= horizon and self._is_of(state, mark):
                found = number, mark
                break
            start += 1
        for number in reversed(commits[:start]):
            mark = self._log.mark_at(number)
            if mark is None or not self._is_of(state, mark):
                continue
            if mark.version < horizon:
                break
            found = number, mark
        return found

    # --- one version ---------------------------------------------------------------------------

    def _step(
        self, state: TableState, tip: Tip, before: Mark, change: _Change, progress: CaughtUp
    ) -> Tip | None:
        """Publish one version after the one before it; None if others were first."""
        commit, changed = change.commit, change.files
        schemas, number, foreign = state.table.schemas, tip.number + 1, change.foreign
        shown = _rows(changed, after=True)
        gone = [
            remove_action(
                each, deletionTimestamp=commit.completed_ms, dataChange=commit.changes_rows
            )
            for each in _rows(changed, after=False)
        ]
        if foreign is not None:
            added_now = {str(each["path"]) for each in shown}
            shown_again, removed = self._undone(state, commit, foreign, added_now)
            shown += shown_again
            gone += removed
        self._copy_vectors(shown)
        added = [
            add_action(
                each,
                schemas,
                modificationTime=commit.completed_ms,
                dataChange=commit.changes_rows or foreign is not None,
            )
            for each in shown
        ]
        features = before.features
        if commit.schema_id != before.schema_id:
            features |= _schema_at(state, commit.schema_id).features
        if any(each["masked"] for each in shown):
            features |= {VECTORS}
        mark = self._mark(commit, features, number, before)
        if foreign is not None:
            mark = replace(mark, time_ms=max(mark.time_ms, foreign.latest_ms + 1))
        defines = features != before.features or commit.schema_id != before.schema_id
        header = self._header(state, mark) if defines or (foreign and foreign.defines) else ()
        undone = None if foreign is None else Foreign(number, tip.foreign, foreign.operations)
        if header or foreign is not None or self._log.has_checkpoint(number):
            # An engine takes a commit with a header for the beginning of a log, if what is before
            # it is missing. With a checkpoint of it, that is right. And what others wrote, engines
            # need not understand then. One that is there may be of others, or of a history that was
            # cut off, and engines would start from it: it is replaced.
            self._log.put_checkpoint(number, self._all(state, mark), ahead=True)
        return self._put(state, tip, _Draft(mark, [*header, *gone, *added], undone), progress)

    def _foreign(self, tip: Tip) -> ForeignActions | None:
        """Read what others wrote at the end of the log; None for nothing, and for too much."""
        bodies, left = [], FOREIGN_BYTES_MAX
        for number in tip.foreign:
            try:
                bodies.append(self._log.find(number, left) or b"")
            except CorruptMetadataError:  # it is larger
                return None
            left -= len(bodies[-1])
        return read_foreign(bodies) if bodies else None

    def _undone(
        self, state: TableState, commit: DecidedVersion, foreign: ForeignActions, shown: set[str]
    ) -> tuple[list[dict[str, object]], list[Json]]:
        """Return the files to show again, and what takes away what others added."""
        live = self._live(state, commit.version)
        names = pa.array(sorted(foreign.paths), pa.string())
        ours = live.filter(pc.is_in(live["path"], value_set=names)).to_pylist()
        actions = [_as_shown(each, state) for each in ours]
        known = {(str(each["path"]), vector_identity(each)) for each in actions}
        strange: list[Json] = [
            {"remove": {**_only_identity(file), "deletionTimestamp": commit.completed_ms}}
            for identity, file in foreign.added.items()
            if identity not in known and is_text(identity[0])
        ]
        return [each for each in ours if each["path"] not in shown], strange

    def _copy_vectors(self, files: Sequence[Mapping[str, object]]) -> None:
        """Put copies of files of vectors where readers of the log find them; equal if there."""
        named = (file["dv_path"] for file in files if file["masked"])
        for path in dict.fromkeys(str(each) for each in named if each is not None):
            body = self._store.find(path, size_max=_VECTORS_BYTES_MAX)
            if body is None:
                message = f"{path} is missing"
                raise CorruptMetadataError(message, hint="run tablectl verify", path=path)
            self._store.put_if_absent(vector_copy(path), body)

    def _put(self, state: TableState, tip: Tip, draft: _Draft, progress: CaughtUp) -> Tip | None:
        """Publish a commit; return the end of the log after it, or None if others were first."""
        mark = draft.mark
        number = tip.number + 1
        if not self._log.put(number, [_info(mark), *draft.actions]):
            theirs = self._log.mark_at(number)
            if theirs is None or (theirs.version, theirs.instant) != (mark.version, mark.instant):
                return None
            mark = theirs  # the same version, by another publisher: it says what the log has now
        else:
            progress.published += 1
            if draft.undone is not None:
                progress.undone.append(draft.undone)
            self._checkpoint_if_due(state, number, mark)
        return tip.then(number, mark)

    # --- checkpoints ---------------------------------------------------------------------------

    def _checkpoint_if_due(self, state: TableState, number: int, mark: Mark) -> None:
        interval = state.table.options.count("checkpoint.interval")
        due = number and number % interval == 0 and number != mark.start
        if due and state.files <= INLINE_FILES_MAX:
            self._log.put_checkpoint(number, self._all(state, mark))

    def _live(self, state: TableState, version: int) -> pa.Table:
        return state.folded(self._store, version, bounds=True).live(version)

    def _all(self, state: TableState, mark: Mark, live: pa.Table | None = None) -> list[Json]:
        """Return all that is in force at a version; ``live``: its files, if they are known."""
        files = self._live(state, mark.version) if live is None else live
        said = {"modificationTime": mark.time_ms, "dataChange": False}
        added = [add_action(each, state.table.schemas, **said) for each in files.to_pylist()]
        return [*self._header(state, mark), *added]

    def _leap(
        self, state: TableState, tip: Tip, commit: DecidedVersion, progress: CaughtUp
    ) -> Tip | None:
        """Publish the newest version alone: a checkpoint of it, then its commit."""
        before = tip.ours
        left = 0 if before is None else max(0, commit.version - before.version - 1)
        number = _number_of_leap(tip, commit.version)
        live = self._live(state, commit.version)
        features = _schema_at(state, commit.schema_id).features
        if before is not None:
            features |= before.features
        if pc.any(pc.greater(live["masked"], 0)).as_py():
            features |= {VECTORS}
        mark = self._mark(commit, features, number, before)
        self._copy_vectors(live.select(["masked", "dv_path"]).to_pylist())
        self._log.put_checkpoint(number, self._all(state, mark, live), ahead=True)
        leapt = replace(tip, number=number - 1)
        undone = Foreign(number, tip.foreign, ()) if tip.foreign else None
        draft = _Draft(mark, self._header(state, mark), undone)
        then = self._put(state, leapt, draft, progress)
        if then is not None:
            progress.left_out += left
        return then


def _number_of_leap(tip: Tip, version: int) -> int:
    """Return the number under which a version is published alone.

    Of two versions it is never the same: a publisher that knows an older head would else write its
    checkpoint over that of a newer one.
    """
    # A reader that has applied what others wrote must not go on from there: it meets a gap.
    free = max(tip.number + (2 if tip.foreign else 1), tip.checkpoint)
    if tip.ours is None:
        return version if version >= free else free + version
    steps = version - tip.ours.version
    return free + steps - (free == tip.number + 1)


def _schema_at(state: TableState, number: int) -> DeltaSchema:
    return DeltaSchema.of(state.table.schemas, number)


def _one(tip: Tip | None) -> tuple[Tip, ...]:
    return () if tip is None else (tip,)


def _rows(changed: pa.Table, *, after: bool) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = changed.filter(pc.equal(changed["after"], after)).to_pylist()
    return rows


def _as_shown(file: Mapping[str, object], state: TableState) -> Json:
    action = add_action(file, state.table.schemas)["add"]
    if not isinstance(action, dict):
        raise TypeError(action)
    return action


def _only_identity(file: Mapping[str, object]) -> Json:
    said: Json = {"path": file.get("path", ""), "dataChange": True}
    if isinstance(file.get("deletionVector"), dict):
        said["deletionVector"] = file["deletionVector"]
    return said


def _info(mark: Mark) -> Json:
    return {
        "commitInfo": {
            "inCommitTimestamp": mark.time_ms,
            "timestamp": mark.time_ms,
            "operation": "WRITE",
            "operationParameters": {},
            "engineInfo": ENGINE,
            "isBlindAppend": False,
            "plait": mark.to_dict(),
        }
    }
