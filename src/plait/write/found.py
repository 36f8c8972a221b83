"""What commit ids led to."""

from __future__ import annotations

from plait.errors import InvariantError, StreamError
from plait.model.decision import CommitResult, Token
from plait.txn.site import Site
from plait.txn.tokens import find_applied


def find_result(site: Site, commit_id: str) -> CommitResult | None:
    """Find what a commit id led to; None if it did not commit."""
    state = site.cache.known()
    version = state.find_commit(site.store, commit_id)
    if version is None:
        state = site.cache.refresh()
        version = state.find_commit(site.store, commit_id)
    return None if version is None else result_at(site, version)


def find_epoch(site: Site, token: Token) -> CommitResult | None:
    """Find what this very epoch of a stream led to; None if it is the next to come.

    Raises:
        StreamError: it does not continue the stream.
    """
    try:
        version = find_applied(site.store, site.cache.known(), token)
    except StreamError:  # what is known may be old
        version = find_applied(site.store, site.cache.refresh(), token)
    return None if version is None else result_at(site, version)


def result_at(site: Site, version: int) -> CommitResult:
    """Give what the commit of a version led to."""
    decision = site.cache.timeline.find(version)
    if decision is None:
        message = f"version {version} has no slot"
        raise InvariantError(message)
    return CommitResult(version, decision.instant, decision.stats)
