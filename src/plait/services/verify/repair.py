"""Repair: mend what verify found, where the mend is provably right; say what is left.

A finding gets one of four answers. ``mend``: the mend is proven, and ``repair`` makes it.
``choose``: a person must choose. ``later``: the timeline comes first. ``lost``: nothing mends it.
Repair never guesses: bytes come from a copy only if something in the table proves them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from plait.errors import (
    CorruptMetadataError,
    FormatError,
    OptionError,
    StorageError,
    TableError,
    TableNotFoundError,
)
from plait.files.data_file import parse_path
from plait.model.changes import BASE, LOG
from plait.model.plain import Plain
from plait.services.verify.backup import Backup
from plait.services.verify.checks import Problem, verify
from plait.services.verify.cut_off import CutOff
from plait.services.verify.loss import accept_loss as give_up
from plait.services.verify.loss import files_needing
from plait.services.verify.report import INDEXED
from plait.state.cache import StateCache
from plait.state.checkpoint import list_checkpoints, load_checkpoint
from plait.state.state import TableState
from plait.storage.port import Store
from plait.timeline import paths
from plait.txn.table_handle import TableHandle

MEND, CHOOSE, LATER, LOST = "mend", "choose", "later", "lost"
SLOT, MANIFEST, HISTORY, CHECKPOINT = "slot", "manifest", "history", "checkpoint"
FILE, VECTOR, KEYS, FOREIGN, OTHER = "file", "vector", "keys", "foreign", "other"
ARCHIVE, INDEX = "archive", "index"
_TIMELINE: Final = (SLOT, ARCHIVE, MANIFEST, HISTORY)
_NO_COPY = "name a copy of the table that has it (--from)"
_NOT_PROVEN = "the copy does not have the same bytes"
_ONLY_OLDER = "only older versions need it, and they cannot be read until a clean ends them"
_CHOICES = "restore a version that does not need it, or give up its rows (--accept-loss)"
_NEW_INDEX = "its rows are whole: cluster the table by other columns, then by its own again"


@dataclass(frozen=True, slots=True)
class Finding(Plain):
    """A problem, and what can be done about it."""

    KEYS = "id kind path problem answer what"

    kind: str
    """``slot``, ``manifest``, ``history``, ``checkpoint``, ``file``, ``vector``, ``index``,
    ``keys``, ``foreign`` or ``other``."""
    path: str
    problem: str
    answer: str
    """``mend``, ``choose``, ``later`` or ``lost``."""
    what: str
    """What is done, or what a person can do."""
    cut: CutOff | None = None
    """What a cut-off deletes, where that is one of the answers."""

    @property
    def id(self) -> str:
        """The finding's name, such as ``file:data/...``."""
        return f"{self.kind}:{self.path}"

    def to_dict(self) -> dict[str, object]:
        """Return it as plain values."""
        cut_off = {} if self.cut is None else {"cut_off": self.cut.to_dict()}
        return Plain.to_dict(self) | cut_off


@dataclass(frozen=True, slots=True)
class RepairPlan(Plain):
    """The findings of a verification, each with its answer."""

    findings: tuple[Finding, ...]
    source: str | None = None
    """The URI of a copy of the table, if there is one."""
    accepted: tuple[str, ...] = ()
    """Ids of lost files whose rows are given up, or of a lost slot with all that came after it."""

    @property
    def repairs(self) -> tuple[Finding, ...]:
        """The findings that ``repair`` mends."""
        return tuple(each for each in self.findings if each.answer == MEND)


@dataclass(frozen=True, slots=True)
class RepairReport(Plain):
    """The result of a repair."""

    mended: tuple[Finding, ...]
    left: tuple[Finding, ...]
    """What verify finds afterwards, with its answers."""


def plan_repair(
    handle: TableHandle, source: Store | None = None, *, accept_loss: Sequence[str] = ()
) -> RepairPlan:
    """Verify the table, and answer each finding; write nothing.

    Args:
        handle: the table, which may be too damaged to be opened.
        source: the store of a copy.
        accept_loss: ids of findings of lost files whose rows are to be given up, or of a lost slot
            that hides the head: what came after it is cut off.

    Raises:
        OptionError: ``source`` is not a copy of this table, or an id in ``accept_loss`` is of no
            file that the newest version has lost, and of no slot that hides the head.
    """
    steps = _Planner.of(handle, source, accept_loss).steps()
    findings = tuple(finding for finding, _ in steps)
    repairs = {finding.id for finding in findings if finding.answer == MEND}
    for each in accept_loss:
        if each not in repairs:
            message = f"accept_loss={each!r} is nothing that the newest version has lost"
            hint = "name the id of a file, vector or slot as the plan shows it: file:data/..."
            raise OptionError(message, hint=hint, key="accept_loss", value=each)
    return RepairPlan(findings, None if source is None else source.address.uri, tuple(accept_loss))


def repair(handle: TableHandle, plan: RepairPlan, source: Store | None = None) -> RepairReport:
    """Make the mends of a plan that are still right; it is safe to run it twice.

    Each finding is looked for and answered again, so nothing that the plan says is trusted. But a
    cut-off deletes exactly what the plan names: a person agreed to that, and to nothing more.

    Raises:
        PlanStaleError: slots came to what a cut-off deletes, or went from it.
    """
    wanted = {finding.id: finding for finding in plan.repairs}
    steps = _Planner.of(handle, source, plan.accepted).steps()
    for finding, _ in steps:
        if finding.cut is not None and finding.answer == MEND and finding.id in wanted:
            finding.cut.require_planned(wanted[finding.id].cut)
    mended = []
    for finding, step in steps:
        if step is not None and finding.id in wanted:
            step()
            mended.append(finding)
    return RepairReport(tuple(mended), plan_repair(handle, source).findings)


Step = tuple[Finding, Callable[[], object] | None]


@dataclass(frozen=True, slots=True)
class _Planner:
    """Answers the problems of one verification."""

    handle: TableHandle
    problems: tuple[Problem, ...]
    state: TableState | None
    """The newest state; None where the timeline is not whole."""
    backup: Backup
    copied: bool
    """Whether there is a copy."""
    accepted: frozenset[str]

    @classmethod
    def of(
        cls, handle: TableHandle, source: Store | None, accepted: Sequence[str] = ()
    ) -> _Planner:
        backup = Backup(handle.store, source or handle.store)
        if source is not None and not backup.is_of_table():
            uri = source.address.uri
            message = f"{uri} is not a copy of this table: their table.json differ"
            raise OptionError(message, hint="name a copy of this table", key="from", value=uri)
        problems = verify(handle).problems
        state = None
        if not any(kind_of(each) in _TIMELINE for each in problems):
            state = StateCache(handle.store, handle.ports).refresh()
        return cls(handle, problems, state, backup, source is not None, frozenset(accepted))

    def steps(self) -> list[Step]:
        """Answer each problem once."""
        steps: dict[str, Step] = {}
        for problem in self.problems:
            for step in self._answer(problem):
                steps.setdefault(step[0].id, step)
        return list(steps.values())

    def _answer(self, problem: Problem) -> list[Step]:
        kind = kind_of(problem)
        if kind == SLOT:
            return self._slots(problem)
        if kind == ARCHIVE:
            return [self._archive(problem)]
        if kind == MANIFEST:
            body = self.backup.find_manifest(problem.path) if self.copied else None
            return [self._put_back(problem, kind, body)]
        if kind == CHECKPOINT:
            return [self._checkpoint(problem)]
        if kind in (FILE, VECTOR, INDEX):
            return [self._data(problem, kind)]
        answer, what = _OTHERS[kind]
        return [(Finding(kind, problem.path, problem.message, answer, what), None)]

    def _slots(self, problem: Problem) -> list[Step]:
        """Answer for a slot, or for the one before it if that one was replaced."""
        version = int(problem.path.rpartition("/")[2].removesuffix(".json"))
        if self.backup.proves(version) and version and not self.backup.proves(version - 1):
            version -= 1
        path = paths.slot(version)
        body = self.backup.find_slot(version)
        named = Problem(problem.invariant, path, problem.message)
        if body is not None and body == self.handle.store.find(path):
            what = "the next decision names exactly these bytes, so no copy has better ones"
            return [(Finding(SLOT, path, problem.message, LOST, what), None)]
        cut = self._cut(named, version) if body is None else None
        return [cut or self._put_back(named, SLOT, body)]

    def _cut(self, problem: Problem, version: int) -> Step | None:
        """Offer to end the timeline below a slot that is lost; None where that gives up nothing.

        A checkpoint after the slot makes up for it, and then the head lies beyond. Where a service
        decides the slots, it would go on naming those that were cut off.
        """
        if self.handle.plain_store is not self.handle.store:
            return None
        below = _readable(self.handle)
        if below is None or version != below + 1:
            return None
        cut = CutOff.plan(self.handle.store, version)
        count = f"{len(cut.slots)} slot(s), the newest is {cut.newest}"
        reason = _NOT_PROVEN if self.copied else _NO_COPY
        what = f"{reason}, or give up what came after version {below} (--accept-loss): {count}"
        finding = Finding(SLOT, problem.path, problem.message, CHOOSE, what, cut)
        if finding.id not in self.accepted:
            return finding, None
        what = f"cut off what came after version {below}: {count}; their files stay"
        mended = replace(finding, answer=MEND, what=what)
        return mended, lambda: cut.make(self.handle.store, self._reach(below))

    def _reach(self, version: int) -> TableState:
        return StateCache(self.handle.store, self.handle.ports).refresh_up_to(version)

    def _archive(self, problem: Problem) -> Step:
        """Answer for a file of the archive with the bytes of a copy."""
        try:
            files = StateCache(self.handle.store, self.handle.ports).refresh().archive.files
        except TableError:
            files = ()  # nothing says which bytes are right
        named = [file for file in files if file.path == problem.path]
        body = self.backup.find_archive(named[0]) if named else None
        return self._put_back(problem, ARCHIVE, body)

    def _put_back(self, problem: Problem, kind: str, body: bytes | None) -> Step:
        """Answer with bytes that are proven, or say that nothing but them mends it."""
        path = problem.path
        if body is None:
            what = f"nothing else mends it: {_NOT_PROVEN if self.copied else _NO_COPY}"
            return Finding(kind, path, problem.message, LOST, what), None
        proven = body
        what = f"put back {len(body):,} bytes, which the table's metadata proves"
        finding = Finding(kind, path, problem.message, MEND, what)
        return finding, lambda: _write(self.handle.store, path, proven)

    def _checkpoint(self, problem: Problem) -> Step:
        path = problem.path
        if self.state is None:
            what = "mend the timeline first: a checkpoint may be all that is left of a decision"
            return Finding(CHECKPOINT, path, problem.message, LATER, what), None
        what = "delete the checkpoints that rest on it; a new one is written from the decisions"
        finding = Finding(CHECKPOINT, path, problem.message, MEND, what)
        return finding, lambda: _write_anew(self.handle, path)

    def _data(self, problem: Problem, kind: str) -> Step:
        path, state = problem.path, self.state
        if state is None:
            what = "mend the timeline first: it says what the file must be"
            return Finding(kind, path, problem.message, LATER, what), None
        find = self.backup.find_vectors if kind == VECTOR else self.backup.find_file
        body = find(state, path) if self.copied else None
        if body is not None:
            return self._put_back(problem, kind, body)
        reason = _NOT_PROVEN if self.copied else _NO_COPY
        if kind == INDEX:
            what = f"{reason}, or {_NEW_INDEX}"
            return Finding(kind, path, problem.message, CHOOSE, what), None
        needing = files_needing(self.handle, state, path)
        if not needing:
            return Finding(kind, path, problem.message, LOST, f"{_ONLY_OLDER}; {reason}"), None
        rows = sum(file.live_rows for file in needing)
        finding = Finding(kind, path, problem.message, CHOOSE, f"{reason}, or {_CHOICES}")
        if finding.id not in self.accepted:
            what = f"{finding.what}; {rows:,} rows of the newest version need it"
            return replace(finding, what=what), None
        what = f"give up {rows:,} rows of the newest version, in {len(needing)} file(s)"
        return replace(finding, answer=MEND, what=what), lambda: give_up(self.handle, path)


_OTHERS: Final = {
    HISTORY: (LOST, "it shows what happened; no later change can make it right"),
    KEYS: (CHOOSE, "decide which row is right, then delete the key and write that row again"),
    FOREIGN: (CHOOSE, "`tablectl foreign list` says whose it is"),
    OTHER: (CHOOSE, "see the message"),
}


def kind_of(problem: Problem) -> str:
    """Tell what is damaged, by the name of the file and the invariant that is broken."""
    path, name = problem.path, parse_path(problem.path)
    if path.startswith(f"{paths.TIMELINE}/"):
        number = path.rpartition("/")[2].removesuffix(".json")
        slot = number.isdigit() and paths.slot(int(number)) == path
        if not slot:
            return FOREIGN
        return SLOT if problem.invariant in ("INV-01", "INV-02") else HISTORY
    if problem.invariant == INDEXED:
        return INDEX
    if problem.invariant in ("INV-06", "INV-08"):
        return FOREIGN if problem.invariant == "INV-06" else KEYS
    if paths.archive_of(path):
        return ARCHIVE
    if path.startswith(f"{paths.MANIFESTS}/"):
        return MANIFEST
    if path.startswith(f"{paths.CHECKPOINTS}/"):
        return CHECKPOINT
    if name is not None and name.kind in (BASE, LOG):
        return FILE
    return VECTOR if name is not None and name.kind == "dv" else OTHER


def _readable(handle: TableHandle) -> int | None:
    """Return the newest version that can be read; None if none can.

    A slot beyond it may be too far away for a look at the head to find it.
    """
    try:
        return StateCache(handle.store, handle.ports).refresh().version
    except CorruptMetadataError as error:
        below = error.facts.get("readable")
        return below if isinstance(below, int) else None
    except (FormatError, StorageError, TableNotFoundError):
        return None


def _write(store: Store, path: str, body: bytes) -> None:
    """Put bytes back so that a power cut does not take them again."""
    store.put(path, body)
    store.persist([path])


def _write_anew(handle: TableHandle, path: str) -> None:
    """Delete the checkpoints that rest on a file, and write one of the newest version."""
    doomed = {path} if path.endswith("/state.json") else set()
    for version in list_checkpoints(handle.store):
        try:
            state = load_checkpoint(handle.store, version)
        except (FormatError, StorageError):
            continue
        if state is not None and any(f.path == path for part in state.parts for f in part.files):
            doomed.add(paths.checkpoint(version))
    handle.store.delete(sorted(doomed))
    try:
        cache = StateCache(handle.store, handle.ports)
        cache.refresh()
        cache.checkpoint(1)
    except TableError:  # the next commit writes it
        return
