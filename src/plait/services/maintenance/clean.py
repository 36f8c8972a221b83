"""Clean: files that no readable version needs are condemned by a decision, then deleted.

A clean raises the horizon, the oldest version that can be read. Its files are condemned by a later
clean, once the grace is over; until then an undo lowers the horizon again. Both are decisions, so
one of them is first, and no file is deleted that an undo brought back.

A clean decides first, then lists read pins and pending records, and deletes last. It sees every
base and read pin that was taken before the decision, and a client that takes one later sees the
decision (INV-05). Nothing is ever deleted because it is old or unknown (INV-06).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from plait.errors import CorruptMetadataError, TableError
from plait.files.data_file import EXTENSIONS, MASK, parse_path
from plait.interop.delta_actions import vector_copy
from plait.interop.publication import publish_before_clean, trim_published
from plait.interop.publisher import KeptRange
from plait.model.bucket import partition_path
from plait.model.decision import Cleaned, Decision
from plait.model.instant import Action, Operation
from plait.model.plain import Plain
from plait.services.index.files import delete_dropped
from plait.services.maintenance.leftovers import (
    delete_leftovers,
    delete_repushed,
    require_deletable,
)
from plait.services.maintenance.retention import final_of, horizon_of, pairs, unneeded
from plait.state.checkpoint import checkpoint_of, list_checkpoints, load_checkpoint
from plait.state.lineage import LateInstant
from plait.state.state import TableState
from plait.timeline import paths
from plait.timeline.pending import load_pending
from plait.txn.read_pin import load_read_pins
from plait.txn.recovery import RollbackReport, roll_back_failed
from plait.txn.service import publish_service
from plait.txn.table_handle import TableHandle, client

_log = logging.getLogger(__name__)
_CONDEMNED_MAX = 100_000
"""The number of files that one clean condemns; the next clean condemns the rest."""
_CHECKPOINTS_KEPT = 2
_VECTORS = f".{MASK}.{EXTENSIONS[MASK]}"
_REPLANNED = (Operation.CLEAN, Operation.RESTORE, Operation.SAVEPOINT, Operation.PROPERTY)
"""Operations after which a clean is planned again. After others the plan stays valid."""


@dataclass(frozen=True, slots=True)
class CleanPlan:
    """The plan of a clean: what it would decide and delete at a version."""

    version: int
    before: int
    """The oldest version that could be read when it was planned."""
    horizon: int
    """The oldest version that stays readable."""
    final: int
    """The oldest version that an undo can still make readable."""
    grace_s: float
    condemned: tuple[tuple[str, int], ...]
    """Files to condemn, each with the version that ended it."""
    waiting: tuple[tuple[str, int], ...]
    """Files condemned earlier that still exist."""
    held: int
    """How many files a later clean condemns, if nobody undoes this one."""
    sizes: Mapping[str, int] = field(default_factory=dict, repr=False, compare=False)
    """Bytes of the data files to condemn, by path."""

    def to_dict(self) -> dict[str, object]:
        """Return it as plain values."""
        return {
            "version": self.version,
            "horizon": self.horizon,
            "final": self.final,
            "condemn": [path for path, _ in self.condemned],
            "waiting": [path for path, _ in self.waiting],
            "held": self.held,
            "bytes": sum(self.sizes.values()),
        }


@dataclass(frozen=True, slots=True)
class CleanReport(Plain):
    """The result of a clean."""

    plan: CleanPlan
    version: int | None
    """The version of its decision; None if there was nothing to decide."""
    deleted: tuple[str, ...]
    spared: tuple[str, ...]
    """Condemned files that a writer or reader may still need; a later clean deletes them."""
    late: tuple[str, ...]
    """Files that rolled-back writers wrote after their end."""
    rollback: RollbackReport
    bytes_freed: int = 0
    """Size of the data files that were condemned and deleted."""
    held_back: str | None = None
    """Why published metadata still names versions that could go; None if nothing is in the way."""

    @property
    def idle(self) -> bool:
        """Whether there was nothing to decide and nothing to delete."""
        return self.version is None and not (self.deleted or self.late)


@dataclass(frozen=True, slots=True)
class CleanUndone(Plain):
    """The result of undoing cleans."""

    KEYS = "version undone=reverted horizon"

    version: int | None
    """The version of its decision; None if there was nothing to undo."""
    reverted: tuple[int, ...]
    """The versions of the cleans whose horizons were taken back."""
    horizon: int
    """The oldest version that can be read now."""


def plan_clean(handle: TableHandle, *, now: bool = False) -> CleanPlan:
    """Plan a clean of the newest version; write nothing.

    Args:
        handle: the table.
        now: leave no grace: condemn the files at once, so that the clean cannot be undone.
    """
    state = handle.cache.refresh()
    return _plan(handle, state, 0 if now else state.table.options.seconds("clean.grace"))


def clean(handle: TableHandle, plan: CleanPlan | None = None) -> CleanReport:
    """Execute a plan, or a new one: condemn files, then delete those that no client may need.

    Only files in the plan are condemned, and only if that is still right in the newest version.
    It is safe beside writers, readers and other cleans. If it is killed, the next one continues.

    Raises:
        ContractError: this client was opened under another contract; nothing is deleted.
        CommitOutcomeUnknownError: the outcome is unknown; nothing more is deleted.
    """
    handle.require_contract(handle.cache.refresh().table.contract)
    rollback = roll_back_failed(handle, reason="found dead by a clean")
    published = bool(handle.cache.known().table.published)
    kept_from = publish_before_clean(handle) if published else None
    wanted = plan or plan_clean(handle)
    planned, held_back = _capped(wanted, kept_from), None
    if planned.horizon < wanted.horizon:
        held_back = f"the published metadata is not up to date, and needs version {kept_from}"
    if published:
        try:
            kept = KeptRange(planned.horizon, planned.final)
            trim_published(handle, handle.cache.known(), kept)
        except TableError as error:
            _log.warning("versions stay readable, since a published log still has them: %s", error)
            planned, held_back = _capped(planned, planned.before), str(error)
    drafts = _Drafts(handle, planned, planned if plan is None else None)
    zombies = handle.cache.known().late  # before our own horizon lets them go
    gone, _ = _split(planned.waiting, _needed_from(handle))
    handle.store.delete(_with_copies(gone))
    deleted_now = frozenset(gone)
    decision = publish_service(handle, lambda state: drafts.draft(state, deleted_now))
    handle.ports.observer.phase("delete")
    fresh = () if decision is None or decision.cleaned is None else decision.cleaned.condemned
    waiting = tuple(entry for entry in planned.waiting if entry[0] not in deleted_now)
    deletable, spared = _split((*fresh, *waiting), _needed_from(handle))
    handle.store.delete(_with_copies(deletable))
    late = _delete_late(handle, tuple(dict.fromkeys((*zombies, *handle.cache.known().late))))
    delete_leftovers(handle)
    delete_repushed(handle)
    delete_dropped(handle)
    version = None if decision is None else decision.version
    deleted = (*gone, *deletable)
    freed = sum(map(drafts.size_of, deletable))
    late_now, spared_now = tuple(late), tuple(spared)
    return CleanReport(planned, version, deleted, spared_now, late_now, rollback, freed, held_back)


def _capped(plan: CleanPlan, kept_from: int | None) -> CleanPlan:
    """Return a plan that lets go of no version from one on; None: the plan itself."""
    if kept_from is None or plan.horizon <= kept_from:
        return plan
    horizon = max(plan.before, kept_from)
    final = min(plan.final, horizon)
    condemned = tuple(
        (path, ended)
        for path, ended in plan.condemned
        if ended <= final or checkpoint_of(path) is not None
    )
    return replace(plan, horizon=horizon, final=final, condemned=condemned)


def _with_copies(paths: Sequence[str]) -> list[str]:
    """Return files to delete, and the copies of them that readers of a Delta log had.

    Copies are there also where the table is not published any more.
    """
    return [*paths, *(vector_copy(path) for path in paths if path.endswith(_VECTORS))]


def undo_clean(handle: TableHandle, *, since: int | None = None) -> CleanUndone:
    """Make the versions readable again that cleans let go of, as far as these are not final.

    Args:
        handle: the table.
        since: undo only the cleans of this version or later.

    Raises:
        ContractError: this client was opened under another contract.
        CommitOutcomeUnknownError: the outcome is unknown.
    """
    reverted: list[int] = []

    def draft(state: TableState) -> Decision | None:
        doomed = [each for each in state.horizons.raised if since is None or each.version >= since]
        reverted[:] = [each.version for each in doomed]
        if not doomed:
            return None
        kept = [each.horizon for each in state.horizons.raised if each not in doomed]
        horizon = max(kept, default=state.horizons.final)
        return _clean_draft(handle, state, Cleaned(horizon, state.horizons.final, undo=reverted[0]))

    decision = publish_service(handle, draft)
    version = None if decision is None else decision.version
    return CleanUndone(version, tuple(reverted), handle.cache.known().horizon)


def _plan(handle: TableHandle, state: TableState, grace_s: float) -> CleanPlan:
    folded = state.folded(handle.store)
    horizon = horizon_of(handle, state)
    final = final_of(handle, state, horizon, grace_s)
    over = unneeded(folded, state.lineage.readable(horizon, state.table.kept))
    condemned = [entry for entry in over if entry[1] <= final]
    held = len(over) - len(condemned)
    condemned += _old_checkpoints(handle, state)
    waiting = tuple(_in_order(pairs(folded.condemned, "removed")))
    known = {path for path, _ in waiting}
    require_deletable(known, state.archive.files)
    new = _in_order({entry for entry in condemned if entry[0] not in known})[:_CONDEMNED_MAX]
    sizes = _sizes(folded.files, [path for path, _ in new])
    return CleanPlan(
        state.version, state.horizon, horizon, final, grace_s, tuple(new), waiting, held, sizes
    )


def _in_order(entries: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    """Sort what is to go. A checkpoint goes before its parts: then none names what is gone."""

    def order(entry: tuple[str, int]) -> tuple[bool, tuple[str, int]]:
        number = checkpoint_of(entry[0])
        return number is None or entry[0] != paths.checkpoint(number), entry

    return sorted(entries, key=order)


def _sizes(files: pa.Table, paths: Sequence[str]) -> dict[str, int]:
    """Return the bytes of some files, those of them that are data files."""
    named = files.filter(pc.is_in(files["path"], value_set=pa.array(paths, pa.string())))
    return dict(pairs(named, "bytes"))


def _old_checkpoints(handle: TableHandle, state: TableState) -> list[tuple[str, int]]:
    """Return checkpoint files that neither the newest two nor a writer of a newer one need."""
    versions = list_checkpoints(handle.store)
    if len(versions) <= _CHECKPOINTS_KEPT:
        return []
    needed: set[str] = set()
    for version in versions[-_CHECKPOINTS_KEPT:]:
        try:
            kept = load_checkpoint(handle.store, version)
        except CorruptMetadataError:
            kept = None
        if kept is None:  # wait until two whole ones are there
            return []
        needed |= {file.path for part in kept.parts for file in part.files}
        needed.add(paths.checkpoint(version))
    old = []
    for info in handle.store.list(paths.CHECKPOINTS):
        number = checkpoint_of(info.path)
        if number is None or info.path in needed:
            continue
        if number < versions[-_CHECKPOINTS_KEPT]:
            old.append((info.path, state.version + 1))
    return old


@dataclass(slots=True)
class _Drafts:
    """Drafts the decision of a clean on each head.

    Planning takes seconds in a large table, and others commit meanwhile. So a plan that was made
    here is used on later heads too, while it is right there. Else a busy table would never be
    cleaned.
    """

    handle: TableHandle
    plan: CleanPlan
    """What the caller wants. It may come from anywhere, so it alone condemns nothing."""
    own: CleanPlan | None
    """The last plan that was made here."""
    wanted: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        """Take the names of the files once."""
        self.wanted = frozenset(path for path, _ in self.plan.condemned)

    def draft(self, state: TableState, gone: frozenset[str]) -> Decision | None:
        """Return the decision on a head; None if there is nothing to decide.

        Args:
            state: the head.
            gone: files condemned earlier that were deleted.
        """
        if state.horizon < self.plan.before:
            return None  # somebody undid a clean: do not repeat it unasked
        now = self._planned(state)
        horizon = max(state.horizon, min(self.plan.horizon, now.horizon))
        final = max(state.horizons.final, min(self.plan.final, now.final))
        condemned = tuple(
            (path, ended)
            for path, ended in now.condemned  # which may go by a newer horizon than this one
            if path in self.wanted and (ended <= final or checkpoint_of(path) is not None)
        )
        deleted = tuple(path for path, _ in now.waiting if path in gone)
        raised = horizon > state.horizon or final > state.horizons.final
        if not condemned and not deleted and not raised:
            return None
        cleaned = Cleaned(horizon, final, condemned, deleted)
        return _clean_draft(self.handle, state, cleaned)

    def size_of(self, path: str) -> int:
        """Return the bytes of a file that this clean condemned; 0 if they are not known."""
        return 0 if self.own is None else self.own.sizes.get(path, 0)

    def _planned(self, state: TableState) -> CleanPlan:
        """Return what was planned here, or plan again if a decision since may have changed it."""
        own = self.own
        since = None if own is None else state.recent(own.version)
        if own is None or since is None or any(each.operation in _REPLANNED for each in since):
            own = _plan(self.handle, state, self.plan.grace_s)
        elif since:  # no decision says that a checkpoint was written
            ended = [entry for entry in own.condemned if checkpoint_of(entry[0]) is None]
            old = _old_checkpoints(self.handle, state)
            own = replace(own, version=state.version, condemned=tuple(_in_order([*ended, *old])))
        self.own = own
        return own


def _clean_draft(handle: TableHandle, state: TableState, cleaned: Cleaned) -> Decision:
    return Decision(
        instant=handle.new_instant(state),
        action=Action.CLEAN,
        operation=Operation.CLEAN,
        base=state.version,
        cleaned=cleaned,
        client=client(),
    )


def _needed_from(handle: TableHandle) -> int | None:
    """Return the oldest version that a pending instant or read pin may need; None if none."""
    versions = [pending.v0 for pending in load_pending(handle.store)]
    versions += [lease.version for lease in load_read_pins(handle) if not lease.expired]
    return min(versions, default=None)


def _split(
    entries: tuple[tuple[str, int], ...], needed_from: int | None
) -> tuple[list[str], list[str]]:
    """Divide files into those that no client can need and those to keep, a checkpoint first."""
    entries = tuple(_in_order(entries))
    deletable = [path for path, ended in entries if needed_from is None or ended <= needed_from]
    spared = [path for path, ended in entries if needed_from is not None and ended > needed_from]
    return deletable, spared


def _delete_late(handle: TableHandle, entries: tuple[LateInstant, ...]) -> list[str]:
    """Delete files that rolled-back writers wrote after their end; the nonce proves it."""
    nonces = {entry.nonce for entry in entries}
    listed = [info for place in paths.OWNED if entries for info in handle.store.list(place)]
    owned = [(info.path, paths.owner_of(info.path)) for info in listed]
    doomed = [path for path, owner in owned if owner is not None and owner.nonce in nonces]
    for place in sorted({partition_path(p) for entry in entries for p in entry.partitions}):
        named = [(info.path, parse_path(info.path)) for info in handle.store.list(place)]
        doomed += [path for path, name in named if name and name.instant.nonce in nonces]
    handle.store.delete(doomed)
    return doomed
