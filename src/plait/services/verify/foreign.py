"""Foreign files: what lies in the table's directories, and no decision names.

A file is removed only where a decision proves that nobody will ever need it (INV-06): its instant
was rolled back, or committed without naming it. Where nobody knows its instant, a rollback of that
instant is published first. From then on the instant can never commit, whoever it belongs to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from plait.errors import CorruptMetadataError
from plait.files.data_file import parse_path
from plait.model.bucket import Partition, partition_parse, partition_path
from plait.model.decision import ArchiveFile, RolledBack
from plait.model.document import unseal
from plait.model.instant import Instant, Outcome
from plait.model.plain import Plain
from plait.services.verify.report import Findings
from plait.services.verify.stored import Listing
from plait.state.events import Folded
from plait.state.state import TableState
from plait.timeline import paths
from plait.timeline.pending import load_pending
from plait.txn.rollback import BATCH_MAX, find_outcomes, publish_rollbacks
from plait.txn.table_handle import TableHandle

ROLLED_BACK, UNNAMED, PENDING = "rolled_back", "unnamed", "pending"
UNKNOWN, DROPPED, UNPROVEN, STRANGE = "unknown", "dropped", "unproven", "strange"
_PROVEN = (ROLLED_BACK, UNNAMED)
_REASON = "nobody knows it, and its files were removed as foreign"


@dataclass(frozen=True, slots=True)
class ForeignFile(Plain):
    """A file that no decision names, or that the table has let go of."""

    path: str
    bytes: int | None
    """Size of the file; None for metadata."""
    owner: str
    """``rolled_back``: its instant was rolled back. ``unnamed``: its instant committed without
    naming it. ``pending``: its instant is at work. ``unknown``: nobody knows its instant.
    ``dropped``: a decision named it, and a clean deleted it. ``unproven``: its instant committed,
    and the decision cannot be read. ``strange``: its name is not one of Plait's."""
    instant: Instant | None = None
    """The instant in its name."""


@dataclass(frozen=True, slots=True)
class ForeignRemoval(Plain):
    """The result of removing foreign files."""

    removed: tuple[str, ...]
    ended: tuple[Instant, ...]
    """Unknown instants that were rolled back first."""
    kept: tuple[ForeignFile, ...]
    """Files that nothing proves to be unnecessary."""


def list_foreign(handle: TableHandle) -> tuple[ForeignFile, ...]:
    """List the files in the table's directories that the table does not need, and their owners.

    Records are loaded after the listing, and decisions after the records: a file of a writer at
    work has a record by then, or a decision.

    Raises:
        StorageError: the store cannot list.
    """
    listing = Listing.take(handle.store, Findings())
    places = tuple(f"{place}/" for place in paths.OWNED)
    owned = [path for path in listing.meta if path.startswith(places)]
    pending = {each.instant.nonce for each in load_pending(handle.store)}
    state = handle.cache.refresh()
    known = _known(state.folded(handle.store), state.archive.files)
    data = listing.data.filter(pc.invert(pc.is_in(listing.data["path"], value_set=known)))
    places = pc.list_element(pc.split_pattern(data["path"], "/", max_splits=1), 0)
    ours = pa.array(sorted(state.table.repush_directories), pa.string())
    data = data.filter(pc.invert(pc.is_in(places, value_set=ours)))
    theirs = pa.array(owned, pa.string())
    theirs = theirs.filter(pc.invert(pc.is_in(theirs, value_set=known)))
    sizes: dict[str, int | None] = dict.fromkeys(theirs.to_pylist())
    sizes |= dict(zip(data["path"].to_pylist(), data["size"].to_pylist(), strict=True))
    return tuple(_judge(handle, state, sizes, pending))


def remove_foreign(handle: TableHandle, files: Iterable[ForeignFile]) -> ForeignRemoval:
    """Remove foreign files where a decision proves that nobody needs them; keep the others.

    Unknown instants are rolled back first. Nothing that ``files`` says is trusted: each file is
    judged again. If it is killed, the next call continues.

    Raises:
        ContractError: this client was opened under another contract; nothing is deleted.
        CommitOutcomeUnknownError: the outcome is unknown; nothing more is deleted.
    """
    wanted = {file.path for file in files}
    state = handle.cache.refresh()
    handle.require_contract(state.table.contract)
    found = [file for file in list_foreign(handle) if file.path in wanted]
    ended = _end_unknown(handle, found)
    if ended:
        found = [file for file in list_foreign(handle) if file.path in wanted]
    doomed = [file.path for file in found if file.owner in _PROVEN]
    if doomed:
        handle.ports.observer.phase("delete", files=len(doomed))
        handle.store.delete(doomed)
    kept = tuple(file for file in found if file.owner not in _PROVEN)
    return ForeignRemoval(tuple(doomed), ended, kept)


def _known(folded: Folded, archive: Iterable[ArchiveFile]) -> pa.Array:
    """Return every path that the state names, those of the archive too."""
    archived = pa.array([file.path for file in archive], pa.string())
    return pa.concat_arrays([folded.paths(), archived])


def _judge(
    handle: TableHandle,
    state: TableState,
    sizes: Mapping[str, int | None],
    pending: set[str],
) -> list[ForeignFile]:
    owners = {path: _owner(path) for path in sizes}
    instants = {owner for owner in owners.values() if owner is not None}
    outcomes = find_outcomes(handle, state, instants, -1)
    named: dict[Instant, set[str] | None] = {}
    found = []
    for path, instant in sorted(owners.items()):
        owner = STRANGE
        if instant is not None:
            outcome = outcomes.get(instant)
            if outcome is Outcome.COMMITTED and instant not in named:
                named[instant] = _named_by(handle, state, instant)
            owner = _verdict(path, outcome, named.get(instant), working=instant.nonce in pending)
        if owner:
            found.append(ForeignFile(path, sizes[path], owner, instant))
    return found


def _owner(path: str) -> Instant | None:
    name = parse_path(path)
    return paths.owner_of(path) if name is None else name.instant


def _verdict(path: str, outcome: Outcome | None, named: set[str] | None, *, working: bool) -> str:
    """Say whose a file is; nothing for a manifest that its decision names."""
    if outcome is Outcome.ROLLED_BACK:
        return ROLLED_BACK
    if outcome is Outcome.COMMITTED:
        if named is None:
            return UNPROVEN
        if path not in named:
            return UNNAMED
        return "" if paths.manifest_of(path) else DROPPED
    return PENDING if working else UNKNOWN


def _named_by(handle: TableHandle, state: TableState, instant: Instant) -> set[str] | None:
    """Return what the decision of an instant names; None if it cannot be read any more."""
    version = state.find_instant(handle.store, instant)
    if version is None:
        return None
    timeline = handle.cache.timeline
    try:
        body = timeline.find_bytes(version)
        if body is None:
            return None
        decision = timeline.decode(version, body)
        changes = unseal(body, path=paths.slot(version))[1]["changes"]
    except CorruptMetadataError:
        return None
    sections = changes.values() if isinstance(changes, dict) else ()
    references = (each.get("manifest") for each in sections if isinstance(each, dict))
    named = decision.changes.written() | {path for path in references if isinstance(path, str)}
    return named | {file.path for file in decision.archived}


def _end_unknown(handle: TableHandle, found: Sequence[ForeignFile]) -> tuple[Instant, ...]:
    """Roll back the unknown instants; return those that were ended by this call."""
    places = _partitions(handle)
    unknown: dict[Instant, dict[Partition, None]] = {}
    for file in found:
        if file.owner == UNKNOWN and file.instant is not None:
            place = places.get(file.path.rpartition("/")[0])
            unknown.setdefault(file.instant, {}).update({} if place is None else {place: None})
    ended: list[Instant] = []
    every = [RolledBack(each, _REASON, tuple(parts)) for each, parts in unknown.items()]
    for at in range(0, len(every), BATCH_MAX):
        wanted = every[at : at + BATCH_MAX]
        outcomes = publish_rollbacks(handle, wanted, since=-1)
        ended += [i for i, outcome in outcomes.items() if outcome is Outcome.ROLLED_BACK]
    return tuple(ended)


def _partitions(handle: TableHandle) -> dict[str, Partition]:
    """Return the partition of each directory that has files of the table."""
    texts = pc.unique(handle.cache.known().folded(handle.store).files["partition"]).to_pylist()
    partitions = [partition_parse(text) for text in texts]
    return {partition_path(partition).rstrip("/"): partition for partition in partitions}
