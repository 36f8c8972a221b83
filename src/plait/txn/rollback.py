"""Rollbacks: the decision that ends an instant, and only then the deletion of its files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow.compute as pc

from plait.model.bucket import Partition, partition_path
from plait.model.changes import WriteStatus
from plait.model.decision import Decision, RolledBack
from plait.model.instant import Action, Instant, Operation, Outcome
from plait.state.state import State
from plait.timeline import paths as timeline
from plait.txn.service import publish_service
from plait.txn.site import Site, client


def publish_rollback(
    site: Site,
    instant: Instant,
    reason: str,
    partitions: Iterable[Partition],
    *,
    since: int,
    facts: Mapping[str, object] | None = None,
) -> Outcome:
    """Decide that an instant is rolled back, unless it is decided already (INV-03).

    ``facts`` say more about why, for people.

    Gives how it stands now: by this call, by another recoverer, or committed after all.

    Raises:
        CommitOutcomeUnknownError: the store does not say; nothing may be deleted.
    """
    places = tuple(partitions)
    decided: list[Outcome] = []

    def draft(state: State) -> Decision | None:
        outcome = find_outcome(site, state, instant, since)
        if outcome is not None:
            decided.append(outcome)
            return None
        return Decision(
            version=0,
            instant=site.new_instant(state),
            outcome=Outcome.COMMITTED,
            action=Action.ROLLBACK,
            operation=Operation.ROLLBACK,
            base=state.version,
            completed_ms=0,
            attempt="",
            previous="",
            rolled_back=RolledBack(instant, reason, places),
            client={**client(), **(facts or {})},
        )

    publish_service(site, draft)
    return decided[0] if decided else Outcome.ROLLED_BACK


def find_outcome(site: Site, state: State, instant: Instant, since: int) -> Outcome | None:
    """Tell how an instant was decided after a version; None if it was not (INV-03)."""
    rows = state.commits(site.store, since=since)
    ended = pc.fill_null(pc.ends_with(rows["ended"], instant.nonce), False)  # noqa: FBT003 - arrow's fill value
    if pc.any(ended).as_py():
        return Outcome.ROLLED_BACK
    if pc.any(pc.ends_with(rows["instant"], instant.nonce)).as_py():
        return Outcome.COMMITTED
    return None


def delete_files_of(site: Site, instant: Instant, partitions: Iterable[Partition]) -> list[str]:
    """Delete the files of a rolled-back instant and its manifests; give their paths.

    Only files whose names carry its nonce; whoever else does the same at once does no harm.
    """
    doomed = [info.path for info in site.store.list(timeline.manifests(instant))]
    for partition in partitions:
        listed = site.store.list(partition_path(partition))
        doomed += _of(instant, (info.path for info in listed))
    site.store.delete(doomed)
    return doomed


def delete_staged(site: Site, instant: Instant, status: WriteStatus) -> None:
    """Delete the files of a rolled-back instant that its own process staged to the end.

    The status names every one of them, so nothing is listed: a partition may have many files.
    """
    site.store.delete(_of(instant, sorted(status.changes.written())))


def _of(instant: Instant, paths: Iterable[str]) -> list[str]:
    """Choose the files whose names carry the nonce of an instant."""
    return [path for path in paths if instant.nonce in path.rsplit("/", 1)[-1]]
