"""Rollbacks: the decision that ends an instant, and only then the deletion of its files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from plait.errors import CorruptMetadataError
from plait.files.data_file import parse_path
from plait.model.bucket import Partition, partition_path
from plait.model.changes import WriteStatus
from plait.model.decision import Decision, RolledBack
from plait.model.instant import Action, Instant, Operation, Outcome
from plait.state.state import TableState
from plait.timeline import paths as timeline
from plait.timeline.pending import PendingInstant
from plait.txn.service import publish_service
from plait.txn.table_handle import TableHandle, client

_ARCHIVERS = (Operation.ARCHIVE, None)
"""Operations whose instants may have written archive files; None is an unknown operation."""
BATCH_MAX = 1_000
"""Maximum number of instants that one decision ends."""
_BATCH_TEXT_MAX = 4 << 20
"""Maximum size of the partition names in one decision; a single instant may have more. A decision
larger than ``SLOT_BYTES_MAX`` cannot be published, and dead instants would stay for ever."""


def publish_rollback(
    handle: TableHandle,
    instant: Instant,
    reason: str,
    partitions: Iterable[Partition],
    *,
    since: int,
    facts: Mapping[str, object] | None = None,
) -> Outcome:
    """Decide that an instant is rolled back, unless it is decided already (INV-03).

    ``facts`` say more about why, for people.

    Returns its outcome: rolled back, by this call or by another recoverer; or committed after all.

    Raises:
        CommitOutcomeUnknownError: the store does not say; nothing may be deleted.
    """
    ended = [RolledBack(instant, reason, tuple(partitions))]
    return publish_rollbacks(handle, ended, since=since, facts=facts)[instant]


def publish_rollbacks(
    handle: TableHandle,
    wanted: Sequence[RolledBack],
    *,
    since: int,
    facts: Mapping[str, object] | None = None,
) -> dict[Instant, Outcome]:
    """Decide in one decision that instants are rolled back, where they are undecided (INV-03).

    ``since`` is a version before which none of them was decided. Returns how each stands now.

    Raises:
        CommitOutcomeUnknownError: the store does not say; nothing may be deleted.
    """
    decided: dict[Instant, Outcome] = {}

    def draft(state: TableState) -> Decision | None:
        decided.update(find_outcomes(handle, state, [each.instant for each in wanted], since))
        # Look again on each head: a writer may commit its instant in the very slot that we lost
        # (INV-03).
        ended = tuple(each for each in wanted if each.instant not in decided)
        if not ended:
            return None
        return Decision(
            instant=handle.new_instant(state),
            action=Action.ROLLBACK,
            operation=Operation.ROLLBACK,
            base=state.version,
            rolled_back=ended,
            client={**client(), **(facts or {})},
        )

    publish_service(handle, draft)
    return {each.instant: decided.get(each.instant, Outcome.ROLLED_BACK) for each in wanted}


@dataclass(frozen=True, slots=True)
class EndedInstant:
    """A pending instant that was brought to its end."""

    instant: Instant
    outcome: Outcome
    deleted: tuple[str, ...]
    """Files of it that nobody needs."""


def end_instants(
    handle: TableHandle, pending: Sequence[PendingInstant], reason: str
) -> list[EndedInstant]:
    """Roll back pending instants, or find how they were decided; then remove what they leave.

    Many are ended by one decision, and each place is listed once for all of them. Idempotent:
    killed half way, the next call does the same again.

    Raises:
        CommitOutcomeUnknownError: the store does not say; of what it was asked nothing was deleted.
    """
    return [each for batch in _batches(pending) for each in _end_batch(handle, batch, reason)]


def _batches(pending: Iterable[PendingInstant]) -> Iterator[list[PendingInstant]]:
    """Yield instants in lists that one decision can end."""
    batch: list[PendingInstant] = []
    total = 0
    for each in pending:
        size = sum(len(value or "") + 8 for place in each.partitions for value in place)
        if batch and (len(batch) >= BATCH_MAX or total + size > _BATCH_TEXT_MAX):
            yield batch
            batch, total = [], 0
        batch.append(each)
        total += size
    if batch:
        yield batch


def rollback_instants(
    handle: TableHandle, pending: Sequence[PendingInstant], reason: str
) -> dict[Instant, Outcome]:
    """Decide that pending instants are rolled back; return how each stands. Nothing is deleted.

    Raises:
        CommitOutcomeUnknownError: the store does not say.
    """
    outcomes: dict[Instant, Outcome] = {}
    for batch in _batches(pending):
        wanted = [RolledBack(each.instant, reason, places_of(handle, each)) for each in batch]
        since = min(each.v0 for each in batch)
        outcomes.update(publish_rollbacks(handle, wanted, since=since))
    return outcomes


def _end_batch(
    handle: TableHandle, batch: Sequence[PendingInstant], reason: str
) -> list[EndedInstant]:
    outcomes = rollback_instants(handle, batch, reason)
    places = {each.instant: places_of(handle, each) for each in batch}
    doomed = {i: listed for i, listed in places.items() if outcomes[i] is Outcome.ROLLED_BACK}
    deleted: dict[str, list[str]] = {}
    if doomed:
        handle.ports.observer.phase("delete", instants=len(doomed))
        archived = any(e.operation in _ARCHIVERS for e in batch if e.instant in doomed)
        deleted = _delete_files(handle, doomed, archived=archived)
    # The decision comes first, then files, then records. A crash in between leaves records, and the
    # next recovery finds the instants decided and deletes what is left.
    deleted |= _delete_unnamed(handle, {i: places[i] for i in places if i not in doomed})
    handle.store.delete([path for each in batch for path in each.records])
    handle.store.delete([each.heartbeat for each in batch if each.heartbeat is not None])
    files = {instant: tuple(deleted.get(instant.nonce, ())) for instant in outcomes}
    return [EndedInstant(e.instant, outcomes[e.instant], files[e.instant]) for e in batch]


def places_of(handle: TableHandle, pending: PendingInstant) -> tuple[Partition, ...]:
    """Return the partitions in which a pending instant may have files."""
    # Without partition columns, in any layout that the table ever had, files lie in the root, which
    # no record names.
    table = handle.cache.known().table
    layouts = (table.spec.layout, *(each.layout for each in table.former))
    if all(layout.partition_by for layout in layouts):
        return pending.partitions
    return tuple(dict.fromkeys(((), *pending.partitions)))


def find_outcome(
    handle: TableHandle, state: TableState, instant: Instant, since: int
) -> Outcome | None:
    """Tell how an instant was decided after a version; None if it was not (INV-03)."""
    return find_outcomes(handle, state, [instant], since).get(instant)


def find_outcomes(
    handle: TableHandle, state: TableState, instants: Iterable[Instant], since: int
) -> dict[Instant, Outcome]:
    """Tell how instants were decided after a version, as far as they were (INV-03)."""
    wanted = {instant.nonce: instant for instant in instants}
    rows = state.commits(handle.store, since=since)
    committed = (text.rpartition("-")[2] for text in rows["instant"].to_pylist())
    outcomes = {wanted[nonce]: Outcome.COMMITTED for nonce in committed if nonce in wanted}
    lists = (text.split(" ") for text in rows["ended"].to_pylist() if text is not None)
    ended = (text.rpartition("-")[2] for texts in lists for text in texts)
    outcomes.update({wanted[nonce]: Outcome.ROLLED_BACK for nonce in ended if nonce in wanted})
    return outcomes


def delete_files_of(
    handle: TableHandle, instant: Instant, partitions: Iterable[Partition]
) -> list[str]:
    """Delete the files of a rolled-back instant and its manifests; return their paths.

    Only files whose names carry its nonce are deleted, so several clients may do it at once.
    """
    return _delete_files(handle, {instant: tuple(partitions)}).get(instant.nonce, [])


def _delete_files(
    handle: TableHandle, doomed: Mapping[Instant, Iterable[Partition]], *, archived: bool = False
) -> dict[str, list[str]]:
    """Delete the files and manifests of rolled-back instants; return their paths by nonce.

    ``archived``: files of the archive may be among them.
    """
    deleted = _files_of(handle, doomed)
    single = next(iter(doomed)) if len(doomed) == 1 else None
    places = [timeline.MANIFESTS if single is None else timeline.manifests(single)]
    places += [timeline.ARCHIVE] if archived else []
    nonces = {instant.nonce for instant in doomed}
    for info in (info for place in places for info in handle.store.list(place)):
        owner = timeline.owner_of(info.path)
        if owner is not None and owner.nonce in nonces:
            deleted.setdefault(owner.nonce, []).append(info.path)
    handle.store.delete([path for paths in deleted.values() for path in paths])
    return deleted


def _files_of(
    handle: TableHandle, places: Mapping[Instant, Iterable[Partition]]
) -> dict[str, list[str]]:
    """List the data files of instants in their partitions, by nonce."""
    nonces = {instant.nonce for instant in places}
    paths: dict[str, list[str]] = {}
    for place in sorted({partition_path(p) for listed in places.values() for p in listed}):
        for info in handle.store.list(place):
            name = parse_path(info.path)
            if name is not None and name.instant.nonce in nonces:
                paths.setdefault(name.instant.nonce, []).append(info.path)
    return paths


def _delete_unnamed(
    handle: TableHandle, committed: Mapping[Instant, Iterable[Partition]]
) -> dict[str, list[str]]:
    """Delete what committed instants left and their decisions do not name; return it by nonce.

    An attempt of a task that nobody waited for wrote it. No other decision can ever name it.
    """
    files = _files_of(handle, committed)
    deleted: dict[str, list[str]] = {}
    for instant in committed:
        if instant.nonce in files and (named := _find_named(handle, instant)) is not None:
            deleted[instant.nonce] = [p for p in files[instant.nonce] if p not in named]
    handle.store.delete([path for paths in deleted.values() for path in paths])
    return deleted


def _find_named(handle: TableHandle, instant: Instant) -> set[str] | None:
    """Find what the decision of an instant names; None if it cannot be read any more."""
    version = handle.cache.refresh().find_instant(handle.store, instant)
    try:
        decision = None if version is None else handle.cache.timeline.find(version)
    except CorruptMetadataError:
        return None
    return None if decision is None else decision.changes.written()


def delete_staged(handle: TableHandle, instant: Instant, status: WriteStatus) -> None:
    """Delete the files of a rolled-back instant that its own process staged to the end.

    The status names every one of them, so nothing is listed: a partition may have many files.
    """
    handle.store.delete(_of(instant, sorted(status.changes.written())))


def _of(instant: Instant, paths: Iterable[str]) -> list[str]:
    """Choose the files whose names carry the nonce of an instant."""
    named = [(path, parse_path(path)) for path in paths]
    return [path for path, name in named if name and name.instant.nonce == instant.nonce]
