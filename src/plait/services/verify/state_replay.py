"""The state that follows from the decisions, and the checkpoints beside it (INV-04)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from plait.errors import FormatError, StorageError
from plait.files.bounds import Kinds, bound_fields, plain_kinds, with_bounds
from plait.files.data_file import live_files, unmasked
from plait.files.reader import load_stats
from plait.model.decision import Decision, TableStatistics
from plait.services.verify.report import Findings
from plait.state.checkpoint import list_checkpoints, load_checkpoint
from plait.state.checkpoint_verification import CheckpointVerification
from plait.state.events import TABLES, Folded
from plait.state.part_file import PartFile, places_of, read_whole
from plait.state.parts import Part
from plait.state.selected import load_places
from plait.state.state import TableState, statistics_after_decision
from plait.state.statistics import add_places, changed_places, statistics_at
from plait.storage.port import Store
from plait.stream.audit import break_of, describe_break
from plait.timeline import paths
from plait.timeline.log import Timeline
from plait.txn.refusal import find_undone_position

_TAIL_MAX = 64
_COUNTED = ["directory", "partition", "files"]
_COMPARED = 2
"""Number of newest checkpoints that are compared with the decisions: those that are kept."""


@dataclass(slots=True)
class StateReplay:
    """Applies every decision from the first on."""

    store: Store
    findings: Findings
    state: TableState | None = None
    whole: bool = True
    """Whether every decision could be applied so far."""

    def take(self, decision: Decision) -> None:
        """Take the next decision."""
        if not self.whole:
            return
        path = paths.slot(decision.version)
        self._follow(decision, path)
        try:
            if self.state is None:
                self.state = TableState.create(decision, where=path)
            else:
                following = self.state.apply(decision, where=path)
                self._sum_up(self.state, decision, path)
                self.state = following
        except FormatError as error:
            self.whole = False
            self.findings.damage("INV-01", path, error)
            return
        if len(self.state.tail) > _TAIL_MAX:
            self.state = self.state.squeezed()

    def _sum_up(self, before: TableState, decision: Decision, path: str) -> None:
        """Compare the sums that a decision tells with those of its changes."""
        found = statistics_after_decision(self.store, before, decision.changes)
        if decision.live is not None and decision.live != found:
            message = f"it tells {decision.live}, and its live files are {found}"
            self.findings.problem("INV-11", path, message)

    def _follow(self, decision: Decision, path: str) -> None:
        """See whether the tokens of a decision continue their streams."""
        for token in decision.tokens:
            known = None if self.state is None else self.state.streams.get(token.application)
            last = None if known is None else known.token
            if (
                self.state is not None
                and find_undone_position(self.state, token.application) is not None
            ):
                message = f"stream {token.application!r} goes on after a restore undid its position"
                self.findings.problem("INV-16", path, message)
            kind = break_of(last, token)
            if kind is not None:
                message = f"stream {token.application!r}: {describe_break(kind, last, token)}"
                self.findings.problem("INV-09", path, message)


@dataclass(slots=True)
class Checkpoints:
    """Checks the checkpoints on storage against themselves and the replayed state."""

    store: Store
    findings: Findings
    named: set[str] = field(default_factory=set)
    """Every file that belongs to a checkpoint."""

    def check(self, replayed: TableState | None, condemned: set[str], *, data: bool) -> None:
        """Check every checkpoint that no clean has condemned; ``data``: files may be read."""
        whole = []
        for version in list_checkpoints(self.store):
            path = paths.checkpoint(version)
            self.named.add(path)
            if path not in condemned and self._check(version, path):
                whole.append(version)
        if replayed is None:
            return
        for version in whole[-_COMPARED:]:
            self._compare(version, replayed, data=data)

    def _check(self, version: int, path: str) -> bool:
        self.findings.count("checkpoints")
        try:
            state = load_checkpoint(self.store, version)
        except (FormatError, StorageError) as error:
            self.findings.damage("INV-04", path, error)
            return False
        if state is None:
            return False
        kinds = plain_kinds(state.table.spec, state.table.schemas.values())
        for part in state.parts:
            fresh = [self._check_file(file) for file in part.files]
            sound = not any(self.findings.damaged(file.path) for file in part.files)
            if sound and any(fresh):
                self._check_copies(part, kinds)
        return not any(self.findings.damaged(f.path) for part in state.parts for f in part.files)

    def _check_file(self, file: PartFile) -> bool:
        """Read a file, unless it was read for an older checkpoint; tell whether it was read."""
        if file.path in self.named:
            return False
        self.named.add(file.path)
        try:
            read_whole(self.store, file)
        except (FormatError, StorageError) as error:
            self.findings.damage("INV-04", file.path, error)
        return True

    def _check_copies(self, part: Part, kinds: Kinds) -> None:
        """Compare what is written down twice, so that little is read: places, typed bounds."""
        file, places = part.file("added"), part.file("places")
        if file is None:
            return
        added = read_whole(self.store, file, kinds)
        derived = with_bounds(added.select(TABLES["added"].names), kinds)
        for bound in bound_fields(kinds):
            inexact = pa.types.is_floating(bound.type)  # of a float that became a double
            if inexact or bound.name not in derived.column_names:
                continue
            if not added[bound.name].equals(derived[bound.name]):
                message = f"its column {bound.name} differs from its column stats"
                self.findings.problem("INV-04", file.path, message)
        if places is not None:
            order = [("directory", "ascending"), ("partition", "ascending")]
            known, counted = (
                each.filter(pc.greater(each["files"], 0)).select(_COUNTED).sort_by(order)
                for each in (read_whole(self.store, places), places_of(added))
            )
            if not known.equals(counted):
                message = f"its directories are not those of {file.path}"
                self.findings.problem("INV-04", places.path, message)

    def _compare(self, version: int, replayed: TableState, *, data: bool) -> None:
        """Bring a checkpoint to the head by the decisions after it, and compare."""
        path = paths.checkpoint(version)
        if version > replayed.version:
            if not self._is_newer(version):
                self.findings.problem("INV-04", path, "its version does not exist")
            return
        state = load_checkpoint(self.store, version)
        try:
            limit = replayed.version - version
            for decision in Timeline(self.store).load_after(version, limit=limit):
                if state is not None:
                    state = state.apply(decision, where=paths.slot(decision.version))
        except FormatError:
            self.findings.problem("INV-04", path, "the next decision does not continue it")
            return
        # as it is: what is found wrong is not to be replaced by what decisions say
        state = state and replace(state, verification=CheckpointVerification(finished=True))
        different = state and difference(self.store, state, replayed)
        if different:
            message = f"its {different} differ from the decisions"
            self.findings.problem("INV-04", path, message)
        elif state is not None and not self._sums_fit(state, replayed):
            message = "the sums in its places differ from the live files"
            self.findings.problem("INV-04", path, message)
        elif state is not None and data:
            self._check_rebuilt(state, replayed, path)

    def _is_newer(self, version: int) -> bool:
        """Tell whether a version was published since the decisions were read."""
        try:
            return self.store.find(paths.slot(version)) is not None
        except (FormatError, StorageError):
            return False

    def _sums_fit(self, state: TableState, replayed: TableState) -> bool:
        """Tell whether the places of the parts add up to the files live at their version."""
        if not state.parts:
            return True
        recorded = add_places([load_places(self.store, part, state.cache) for part in state.parts])
        decided = CheckpointVerification().base_of(self.store, state.parts)
        if decided is not None and statistics_at(recorded) != decided:
            return False
        version = state.parts[-1].last
        if version < replayed.horizons.final:  # files that were live then are known no more
            return True
        live = replayed.folded(self.store).live(version)
        real = changed_places(live.slice(0, 0), live)
        order = [("directory", "ascending"), ("partition", "ascending")]
        names = ["directory", "partition", "live", "rows", "hash"]
        some = recorded.filter(pc.not_equal(recorded["live"], 0))
        nothing = TableStatistics() == statistics_at(recorded.filter(pc.equal(recorded["live"], 0)))
        mine, theirs = (each.select(names).sort_by(order) for each in (some, real))
        return nothing and mine.equals(theirs)

    def _check_rebuilt(self, state: TableState, replayed: TableState, path: str) -> None:
        """Compare the bounds that a checkpoint alone tells with the files."""
        mine, decided = (
            _by_path(each.folded(self.store, bounds=True).files) for each in (state, replayed)
        )
        rebuilt = mine.filter(pc.and_(pc.is_valid(mine["stats"]), pc.is_null(decided["stats"])))
        files, table = unmasked(rebuilt, version=state.version), state.table
        for at in range(files.num_rows):
            self.findings.count("rebuilt bounds")
            named = files["path"][at].as_py()
            try:
                file = next(live_files(files.slice(at, 1)))
                found = load_stats(self.store, file, table.spec, table.schemas)
            except (FormatError, StorageError) as error:
                self.findings.damage("INV-04", named, error)
                continue
            if files["stats"][at].as_py() != found:
                message = f"its bounds of {named} are not those of the file"
                self.findings.problem("INV-04", path, message)


def difference(store: Store, one: TableState, other: TableState) -> str | None:
    """Name the first part of two states that differs; None if readers see the same.

    The first may know bounds of files of which the other, from decisions, knows none.
    """
    facts = ["version", "checksum", "completed_ms", "newest_time", "horizons"]
    facts += ["late", "reservations", "streams", "lineage", "files", "archive"]
    for name in facts:
        if getattr(one, name) != getattr(other, name):
            return name
    if one.table.to_dict() != other.table.to_dict():
        return "table definition"
    mine = _tables(one.folded(store, bounds=True), one.horizons.final)
    theirs = _tables(other.folded(store, bounds=True), one.horizons.final)
    mine["files"] = _as_decided(mine["files"], theirs["files"])
    for name, table in mine.items():
        if not _ordered(table).equals(_ordered(theirs[name])):
            return name
    if not _ordered(one.commits(store)).equals(_ordered(other.commits(store))):
        return "commits"
    if not _ordered(one.tokens(store)).equals(_ordered(other.tokens(store))):
        return "tokens"
    return None


def _tables(folded: Folded, horizon: int) -> dict[str, pa.Table]:
    """Return what matters for versions that can be read, or be made readable again."""
    seen = pc.fill_null(pc.greater(folded.masks["until"], horizon), True)  # noqa: FBT003 - arrow's fill value
    return {
        "files": folded.files,
        "masks": folded.masks.filter(seen),
        "sidecars": folded.aux,
        "condemned files": folded.condemned,
    }


def _by_path(files: pa.Table) -> pa.Table:
    return files.sort_by([("path", "ascending"), ("version", "ascending")]).combine_chunks()


def _as_decided(files: pa.Table, decided: pa.Table) -> pa.Table:
    """Leave out the bounds that no decision tells: a rebuilt checkpoint may have them."""
    files, decided = _by_path(files), _by_path(decided)
    if files.num_rows != decided.num_rows:
        return files
    unknown = pc.is_null(decided["stats"])
    stats = pc.if_else(unknown, pa.scalar(None, pa.string()), files["stats"])
    return files.set_column(files.schema.get_field_index("stats"), "stats", stats)


def _ordered(table: pa.Table) -> pa.Table:
    names = [field.name for field in table.schema if not pa.types.is_binary(field.type)]
    return table.sort_by([(name, "ascending") for name in names]).combine_chunks()
