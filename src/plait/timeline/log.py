"""The timeline on storage: reading slots, finding the head, writing manifests.

Publishing is not here: only ``txn`` may do that.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping

import pyarrow as pa

from plait.errors import CorruptMetadataError, InstantExpiredError, InvariantError
from plait.model.decision import Decision
from plait.model.document import sealed_checksum
from plait.model.instant import Instant
from plait.storage.port import Store
from plait.timeline import codec, paths
from plait.timeline.archive import Archive
from plait.timeline.columns import load_parquet, to_parquet
from plait.timeline.external_commits import plain_store

INLINE_ROWS_MAX = 256
"""Sections with more rows go to a manifest; both forms mean the same."""


class Timeline:
    """The slots of one table."""

    def __init__(self, store: Store) -> None:
        self._store, self._plain = store, plain_store(store)
        self._archive = Archive(store)

    def find_slot(self, version: int) -> bytes | None:
        """Read a slot as it is; None if it is free (INV-01). Without bytes, it was archived.

        Raises:
            CorruptMetadataError: the slot was lost: a later one is there (INV-02).
        """
        later = paths.slots_after(version)
        return self._store.find(paths.slot(version), size_max=codec.SLOT_BYTES_MAX, later=later)

    def holds(
        self, version: int, checksum: str, *, ask_service: bool = False, emptied: bool = False
    ) -> bool:
        """Tell whether a decision is in its slot.

        Each decision names the one before. So if it is there, this is the timeline that has it,
        though a slot below may be lost.

        Args:
            version: of the decision.
            checksum: of the decision.
            ask_service: ask the service that decides the slots, if there is one, and not the store.
            emptied: the answer where the slot was emptied by an archive, and proves nothing.
        """
        store = self._store if ask_service else self._plain
        try:
            body = store.find(paths.slot(version), size_max=codec.SLOT_BYTES_MAX)
        except CorruptMetadataError:  # too large to be one
            return False
        if body == b"":
            return emptied
        return body is not None and sealed_checksum(body) == checksum

    def find_bytes(self, version: int) -> bytes | None:
        """Read the bytes of a decision, from its slot or from the archive; None if it is free.

        Raises:
            CorruptMetadataError: the slot or the archive is damaged.
        """
        data = self.find_slot(version)
        return data if data or data is None else self._archived(version)[0]

    def find(self, version: int) -> Decision | None:
        """Load the decision of a version; None if its slot is free (INV-01)."""
        data = self.find_bytes(version)
        return None if data is None else self.decode(version, data)

    def _archived(self, version: int) -> list[bytes]:
        """Return the decisions from a version on whose slot is empty, as many as are at hand."""
        bodies = self._archive.find(version)
        if bodies:
            return bodies
        path = paths.slot(version)
        message = f"version {version} is empty, and no archive contains its decision"
        hint = "restore the slot from a backup; nothing can be written to this table without it"
        raise CorruptMetadataError(
            message, hint=hint, path=path, expected="a decision", found="no bytes"
        )

    def decode(self, version: int, data: bytes) -> Decision:
        """Read the bytes of a slot, and check that they belong in it."""
        path = paths.slot(version)

        def load(reference: object, schema: pa.Schema) -> pa.Table:
            try:
                return self._load_section(reference, schema)
            except CorruptMetadataError as error:  # either of the two may be the damaged one
                message = f"{error.message}; {path} names it"
                facts = {**error.facts, "decision": path}
                raise CorruptMetadataError(message, hint=error.hint, **facts) from error

        decision = codec.decode(data, path=path, load=load)
        if decision.version != version:
            message = f"{path} contains the decision of version {decision.version}"
            raise CorruptMetadataError(message, path=path, expected=version, found=decision.version)
        return decision

    def load_after(self, version: int, *, limit: int) -> Iterator[Decision]:
        """Load decisions from ``version + 1`` on, until the head or ``limit`` of them.

        Raises:
            CorruptMetadataError: a slot or the archive is damaged.
        """
        number, end = version + 1, version + limit
        while number <= end:
            data = self.find_slot(number)
            if data is None:
                return
            for body in [data] if data else self._archived(number)[: end - number + 1]:
                yield self.decode(number, body)
                number += 1

    def load_active(self, version: int, *, limit: int) -> Iterator[Decision]:
        """Load the decisions after a version as ``load_after`` does, but none from the archive.

        Raises:
            InstantExpiredError: one of them was archived.
        """
        for number in range(version + 1, version + 1 + limit):
            data = self.find_slot(number)
            if data is None:
                return
            if not data:
                message = f"version {number} was archived"
                hint = "open the table again; it then starts from a checkpoint"
                raise InstantExpiredError(message, hint=hint, version=number)
            yield self.decode(number, data)

    def write_manifests(
        self, instant: Instant, attempt: str, tables: Mapping[str, pa.Table]
    ) -> dict[str, object]:
        """Write the large sections of a decision before its slot; return their references."""
        references: dict[str, object] = {}
        for name, table in tables.items():
            if table.num_rows <= INLINE_ROWS_MAX:
                continue
            path = paths.manifest(instant, attempt, name)
            body = to_parquet(table)
            if not self._store.put_if_absent(path, body):
                raise InvariantError(f"{path} already exists")
            digest = hashlib.sha256(body).hexdigest()
            references[name] = {"manifest": path, "rows": table.num_rows, "sha256": digest}
        return references

    def _load_section(self, reference: object, schema: pa.Schema) -> pa.Table:
        if not isinstance(reference, dict):
            raise TypeError(reference)
        path, rows, digest = reference["manifest"], reference["rows"], reference["sha256"]
        inside = isinstance(path, str) and path.startswith(f"{paths.MANIFESTS}/")
        if not (inside and isinstance(rows, int) and isinstance(digest, str)):
            raise ValueError(f"not a reference to a manifest: {str(reference)[:120]}")
        return load_parquet(self._store, path, schema, rows=rows, sha256=digest)
