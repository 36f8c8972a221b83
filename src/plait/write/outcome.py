"""How a commit that did not go well ends, whoever tried it."""

from __future__ import annotations

from collections.abc import Callable

from plait.errors import CommitOutcomeUnknownError, CorruptMetadataError
from plait.model.decision import CommitResult
from plait.txn.site import Site
from plait.txn.transaction import AlreadyCommitted, Transaction
from plait.write.found import result_at


def commit_or_abort(
    site: Site, txn: Transaction, commit: Callable[[], CommitResult]
) -> CommitResult:
    """Commit; give the first result where it was applied before, and roll back after an error.

    A commit whose outcome is not known is left to recovery: it may have landed (INV-10).
    """
    try:
        with txn.standing():
            return commit()
    except AlreadyCommitted as found:
        txn.abort("its commit id or token was applied meanwhile")
        return result_at(site, found.version)
    except CommitOutcomeUnknownError:
        raise
    except CorruptMetadataError:
        txn.abort("a file was damaged or missing")
        raise
    except BaseException as error:
        txn.abort(f"{type(error).__name__} while committing")
        raise
