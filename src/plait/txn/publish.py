"""The one atomic step: put-if-absent of the next slot (INV-02).

Only ``txn`` imports this. A lost reply is resolved by reading the slot back: the attempt in it
says whether the bytes are ours (INV-10).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from plait.errors import CommitOutcomeUnknownError, StorageError
from plait.model.decision import Decision
from plait.model.instant import time_ms, time_text
from plait.state.state import State
from plait.timeline import codec, paths
from plait.txn.site import Site

_TRIES = 6


@dataclass(frozen=True, slots=True)
class Won:
    """Our decision stands."""

    decision: Decision


@dataclass(frozen=True, slots=True)
class Lost:
    """Another decision stands in the slot."""

    theirs: Decision


def publish(
    site: Site, state: State, draft: Decision, manifests: Mapping[str, object] | None = None
) -> Won | Lost:
    """Try to make ``draft`` the decision after ``state``.

    Version, completion time and the link to the decision before are filled in here.

    Raises:
        CommitOutcomeUnknownError: the store does not say; nothing may be deleted.
    """
    decision = replace(
        draft,
        version=state.version + 1,
        completed_ms=max(site.store.now_ms(), state.completed_ms + 1),
        previous=state.checksum,
        attempt=site.ports.ids.nonce(),
    )
    body = codec.encode(decision, manifests)
    won = replace(decision, checksum=codec.sealed_checksum(body), features=codec.FEATURES)
    site.ports.observer.phase("publish", version=decision.version, instant=str(draft.instant))
    error: StorageError | None = None
    for attempt in range(_TRIES):
        try:
            if site.store.put_if_absent(paths.slot(decision.version), body):
                return Won(won)
        except StorageError as problem:
            error = problem
        try:
            theirs = site.cache.timeline.find(decision.version)
        except StorageError as problem:
            error = problem
        else:
            if theirs is not None and theirs.attempt == decision.attempt:
                return Won(won)
            if theirs is not None:
                return Lost(theirs)
        site.ports.clock.sleep(0.05 * 2**attempt * (0.5 + site.ports.ids.jitter()))
    message = f"the store did not say whether version {decision.version} is ours"
    hint = "nothing was deleted; ask find_commit or `tablectl history` once it answers"
    raise CommitOutcomeUnknownError(
        message,
        hint=hint,
        instant=str(draft.instant),
        version=decision.version,
        commit_id=draft.commit_id,
    ) from error


def free_time(instant_time: str, taken: set[str]) -> str:
    """Give the instant time, or the next that nobody has completed under."""
    while instant_time in taken:
        instant_time = time_text(time_ms(instant_time) + 1)
    return instant_time
