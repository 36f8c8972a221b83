"""Slots that a lock provider lends to a store without an atomic put-if-absent (RFC 0003).

A body is written under a name of its own; a key of the service, bound once, names it; then it is
copied into the slot. The bound key is the decision. Whoever meets one that is not copied yet
finishes the copy, so that below the head every slot is on the store.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from plait.errors import (
    CorruptMetadataError,
    LockUnavailableError,
    MissingDependencyError,
    StorageError,
    TableNotFoundError,
)
from plait.locks.identity import identity_of, place_name
from plait.locks.port import SlotArbiter
from plait.model.store_address import StoreAddress
from plait.storage.port import FIND_BYTES_MAX, Capabilities, FileInfo, Store, check_path
from plait.timeline import paths

if TYPE_CHECKING:
    import pyarrow.fs as pafs

BODIES = f"{paths.META}/locks/slots"
KEPT = 100
"""Keys of so many newest versions stay bound, and bodies that nobody needed are swept so often."""
_POINTER_BYTES_MAX = 4096
_log = logging.getLogger(__name__)


class ExternalCommitStore:
    """A store whose slots are decided elsewhere. Every other name must be its writer's own."""

    def __init__(self, inner: Store, arbiter: SlotArbiter) -> None:
        self.inner, self._arbiter = inner, arbiter
        self._identity: str | None = None
        self._unfinished: set[str] = set()

    # --- reading -------------------------------------------------------------------------------

    def find(
        self, path: str, *, size_max: int = FIND_BYTES_MAX, later: Sequence[str] = ()
    ) -> bytes | None:
        """Read a whole file; a slot that is decided and not there yet is put there first.

        Without the service a slot is what the store has: an answer on which nothing is decided,
        because every decision needs the service.
        """
        body = self.inner.find(path, size_max=size_max)
        if body is not None or not _is_slot(path):
            return body
        try:
            key = self._key(path)
            pointer = None if key is None else self._arbiter.find(key)
        except (LockUnavailableError, MissingDependencyError) as error:
            _log.info("looking for %s only on the store: %s", path, error)
            return None
        if pointer is not None:
            return self._finish(path, pointer)
        return self.inner.find(path, size_max=size_max, later=later) if later else None

    def _key(self, path: str) -> str | None:
        """Name the key of a slot; None where there is no table yet."""
        if self._identity is None:
            body = self.inner.find(paths.TABLE, size_max=_POINTER_BYTES_MAX)
            if body is None:
                return None
            self._identity = identity_of(body)
        return f"id-{self._identity}/slots/{_version_of(path):020d}"

    def _finish(self, path: str, pointer: bytes) -> bytes:
        """Copy the body that a key names into its slot, and return what stands there."""
        body = self._find_body(pointer)
        if body is None:  # then somebody has finished, and the body is not needed any more
            finished = self.inner.find(path)
            if finished is not None:
                return finished
            message = (
                f"ZooKeeper names {path}, whose body is missing from the store: {pointer[:300]!r}"
            )
            hint = (
                "a copied or deleted table may have left this node; see docs: operations/runbook, "
                "and remove the node by hand only if its table no longer exists"
            )
            raise CorruptMetadataError(
                message, hint=hint, path=path, expected="a body", found="none"
            )
        try:
            self._write(path, body)
            self._unfinished.discard(path)
        except StorageError as error:  # a reader without the right to write reads all the same
            self._unfinished.add(path)
            _log.info("%s is decided but cannot be copied: %s", path, error)
        return body

    def _find_body(self, pointer: bytes) -> bytes | None:
        try:
            facts = json.loads(pointer)
            path, digest = check_path(str(facts["body"])), str(facts["sha256"])
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            message = f"a slot is bound to an unreadable body: {pointer[:100]!r}"
            raise CorruptMetadataError(message, path=BODIES) from error
        body = self.inner.find(path) if path.startswith(f"{BODIES}/") else None
        return body if body is not None and _digest(body) == digest else None

    def _write(self, path: str, body: bytes) -> None:
        self.inner.put(path, body)
        self.inner.persist([path])

    # --- deciding ------------------------------------------------------------------------------

    def put_if_absent(self, path: str, body: bytes) -> bool:
        """Decide a slot, or write what is its writer's own.

        Raises:
            StorageError: the outcome is unknown.
            CorruptMetadataError: the slot was decided, and nothing of it is here.
        """
        there = self.inner.find(path)
        if there is not None:
            return there == body
        if path == paths.TABLE:
            return self._decide_identity(body)
        if _is_slot(path):
            return self._decide(path, body)
        self._write(path, body)
        return True

    def _decide_identity(self, body: bytes) -> bool:
        bound = self._claim(place_name(self.inner), body)
        identity_of(bound)
        self._write(paths.TABLE, bound)
        return bound == body

    def _decide(self, path: str, body: bytes) -> bool:
        self._finish_seen()
        key = self._key(path)
        if key is None:
            message = f"{paths.TABLE} is missing, so the slots of this table have no name"
            raise CorruptMetadataError(message, path=paths.TABLE, expected="an id", found="none")
        own = f"{BODIES}/{_version_of(path):020d}-{_digest(body)[:32]}"
        self._write(own, body)
        facts = {"body": own, "sha256": _digest(body), "uri": self.address.uri}
        pointer = json.dumps(facts).encode()
        bound = self._claim(key, pointer)
        if bound != pointer:
            self._drop([own])
            self._finish(path, bound)
            return False
        there = self.inner.find(path)
        if there is not None and there != body:  # decided so long ago that its key was free again
            self._arbiter.remove(key)
            self._drop([own])
            return False
        self._require_same_table(own)
        self._write(path, body)
        self._tidy(_version_of(path), own)
        return True

    def _require_same_table(self, own: str) -> None:
        """Refuse to copy a decision into the slots of another table than it was bound for.

        The copy replaces what is there: the store has no atomic put-if-absent. Another table in
        this place has keys of its own, so what is in its slots may be anything.
        """
        body = self.inner.find(paths.TABLE, size_max=_POINTER_BYTES_MAX)
        if body is not None and identity_of(body) == self._identity:
            return
        self._drop([own])
        uri = self.address.uri
        message = f"the table at {uri} was deleted, or another one was made in its place"
        hint = "end all clients before a table is deleted, and open it again when it is there"
        raise TableNotFoundError(message, hint=hint, uri=uri)

    def _claim(self, key: str, pointer: bytes) -> bytes:
        try:
            return self._arbiter.claim(key, pointer)
        except LockUnavailableError as error:
            message = f"cannot find out to what {key} is bound: {error.message}"
            raise StorageError(message, hint=error.hint, path=key) from error

    def _finish_seen(self) -> None:
        """Copy what this client saw only in the service: no slot may be missing below the head."""
        for path in sorted(self._unfinished):
            if self.inner.find(path) is None:
                self.find(path)
                if path in self._unfinished:
                    message = f"{path} is decided but cannot be copied into its slot"
                    raise StorageError(
                        message, hint="check that the store can be written", path=path
                    )
            self._unfinished.discard(path)

    # --- tidying -------------------------------------------------------------------------------

    def _tidy(self, version: int, own: str) -> None:
        """Drop what a finished slot needs no more; version 0 keeps its key for ever.

        That one stays so that a table which is made anew in the place of a deleted one is refused
        at once, and not when it meets a key of the old one.
        """
        self._drop([own])
        if version > KEPT:
            self._arbiter.remove(f"id-{self._identity}/slots/{version - KEPT:020d}")
        if version % KEPT == 0:
            oldest = f"{BODIES}/{max(0, version - KEPT):020d}"
            try:
                bodies = [info.path for info in self.inner.list(BODIES)]
            except StorageError as error:
                _log.info("unused bodies are left for a later clean: %s", error)
            else:
                self._drop([path for path in bodies if path < oldest])

    def _drop(self, bodies: list[str]) -> None:
        try:
            self.inner.delete(bodies)
        except StorageError as error:
            _log.info("unused bodies are left for a later clean: %s", error)

    # --- the rest is the store's ---------------------------------------------------------------

    @property
    def address(self) -> StoreAddress:
        """Where the store is; what opens it anew opens it bare, and must not publish."""
        return self.inner.address

    @property
    def capabilities(self) -> Capabilities:
        """What the store can do, and put-if-absent if its reads are fresh."""
        can = self.inner.capabilities
        return dataclasses.replace(can, put_if_absent=can.coherent)

    def put(self, path: str, body: bytes) -> None:
        """Write a whole file."""
        self.inner.put(path, body)

    def replace(self, path: str, body: bytes, *, expected: bytes) -> bool:
        """Write a whole file in place of exactly ``expected``."""
        return self.inner.replace(path, body, expected=expected)

    def list(self, prefix: str) -> Iterator[FileInfo]:
        """List files; a slot that was not copied yet is not among them."""
        return self.inner.list(prefix)

    def delete(self, paths: Iterable[str]) -> None:
        """Delete files."""
        self.inner.delete(paths)

    def persist(self, paths: Iterable[str]) -> None:
        """Make files durable."""
        self.inner.persist(paths)

    def now_ms(self) -> int:
        """Return the store's clock."""
        return self.inner.now_ms()

    def filesystem(self) -> pafs.FileSystem:
        """Return the Arrow file system of the store."""
        return self.inner.filesystem()

    def location(self, path: str) -> str:
        """Return the address of a file."""
        return self.inner.location(path)


def plain_store(store: Store) -> Store:
    """Return a store without a service that decides its slots."""
    return store.inner if isinstance(store, ExternalCommitStore) else store


def _is_slot(path: str) -> bool:
    return path.startswith(f"{paths.TIMELINE}/")


def _version_of(path: str) -> int:
    name = path.rsplit("/", 1)[-1].removesuffix(".json")
    if not (name.isascii() and name.isdigit()):
        raise CorruptMetadataError(f"{path} is not the name of a slot", path=path)
    return int(name)


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()
