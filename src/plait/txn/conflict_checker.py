"""Validation: takes in what was decided since our base, and tells what stands in our way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from plait.errors import CorruptMetadataError, StreamError
from plait.model.bucket import BucketId
from plait.model.changes import Digest, WriteStatus
from plait.model.contract import Contract
from plait.model.decision import Decision, ReadSet, Scope, Token
from plait.model.instant import Instant, Operation
from plait.state.state import TableState
from plait.timeline import paths
from plait.txn.conflict import Conflict, Intent, decide
from plait.txn.keys import UNKNOWN, KeyOverlap, Keys
from plait.txn.matrix import Verdict
from plait.txn.policy import require_policy
from plait.txn.refusal import AlreadyCommitted, ContractChanged, Ended, Refused
from plait.txn.table_handle import TableHandle
from plait.txn.tokens import find_applied, sealed

_WINDOW_MAX = 100_000


@dataclass(slots=True)
class ConflictChecker:
    """Knows what one attempted change rests on, and judges decisions by it."""

    handle: TableHandle
    instant: Instant
    operation: Operation
    commit_id: str | None
    contract: Contract
    """Of the base."""
    base: int
    """What the staged files rest on: the head at begin, or that of the last redo."""
    read_set: ReadSet
    """Since when the same keys conflict."""
    tokens: tuple[Token, ...] = ()
    taken: set[str] = field(default_factory=set)
    """Instant times decided since v0."""
    _keys: Keys | None = None

    def look_back(self, state: TableState, v0: int) -> None:
        """Look for our own decision and time between v0 and the base.

        Raises:
            Ended: a recoverer was there.
            AlreadyCommitted: another process that resumed this instant was there.
        """
        if state.version == v0:
            return
        for version, instant, ended in self._decided(state, v0):
            self.taken.add(instant.split("-", 1)[0])
            if ended is not None and self.instant.nonce in ended:
                raise Ended(version, "found before its base")
            if instant.endswith(self.instant.nonce):
                raise AlreadyCommitted(version)

    def continue_streams(self, state: TableState, digest: Digest | None = None) -> None:
        """See whether our tokens are the next of their streams (INV-09).

        Args:
            state: what they must continue.
            digest: of the rows, once they are staged.

        Raises:
            AlreadyCommitted: one was applied, by whomever.
            Refused: one does not continue its stream.
        """
        for token in sealed(self.tokens, digest):
            try:
                applied = find_applied(self.handle.store, state, token)
            except StreamError as error:
                raise Refused(error) from None
            if applied is not None:
                raise AlreadyCommitted(applied)

    def _decided(self, state: TableState, since: int) -> Iterator[tuple[int, str, str | None]]:
        """Return version, instant and ended instants of each decision after a version."""
        recent = state.recent(since)
        if recent is not None:
            for each in recent:
                ended = " ".join(str(back.instant) for back in each.rolled_back)
                yield each.version, str(each.instant), ended or None
            return
        rows = state.commits(self.handle.store, since=since)
        columns = (rows[name].to_pylist() for name in ("version", "instant", "ended"))
        yield from zip(*columns, strict=True)

    def intent(self, status: WriteStatus, scope: Scope, state: TableState) -> Intent:
        """Say what we are about to decide."""
        table = state.table
        plain = Intent.of(self.operation, scope, status.changes, table.spec)
        strict = table.isolation == "serializable"
        return replace(
            plain,
            policy=table.policy,
            rule=require_policy(table.policy),
            serializable=strict,
            read_set=self.read_set,
        )

    def earlier(self, status: WriteStatus, scope: Scope, state: TableState) -> list[Conflict]:
        """Judge what lies between the version that was read and the base.

        The files rest on the base already, so only what cannot be rebased counts.
        """
        if self.read_set.version >= self.base:
            return []
        intent = self.intent(status, scope, state)
        found = []
        count = self.base - self.read_set.version
        for decision in self.handle.cache.decisions(self.read_set.version, limit=count):
            conflict = self._decide(intent, status, decision, state)
            if conflict is not None and conflict.verdict is not Verdict.REBASE:
                found.append(conflict)
        return found

    def again(self, status: WriteStatus, scope: Scope, state: TableState) -> list[Conflict]:
        """Judge the files of a redo: on the newer base they may touch keys that they did not.

        Such as a row that was skipped because of one that is gone now. Who computed rows from a
        read loses an update by that. For others it is as if all had begun at the new base.
        """
        found = self.earlier(status, scope, state)
        if found and not self.read_set.explicit:
            self.read_set = ReadSet(self.base)
            return []
        return found

    def window(
        self, status: WriteStatus, scope: Scope, head: TableState, first: Decision | None
    ) -> tuple[list[Conflict], TableState]:
        """Take in the decisions since ``head``; give those in our way and the new head.

        Raises:
            Ended: we were rolled back.
            AlreadyCommitted: by another process that resumed us, or under our commit id or token.
            ContractChanged: the table has another contract now.
            Refused: our token does not continue its stream any more.
        """
        intent = self.intent(status, scope, head)
        conflicts: list[Conflict] = []
        if first is not None:
            head = self._take_in(first, head, intent, status, conflicts)
        for decision in self.handle.cache.decisions(head.version, limit=_WINDOW_MAX):
            head = self._take_in(decision, head, intent, status, conflicts)
        self.handle.cache.offer(head)
        return conflicts, head

    def redone(self, conflicts: list[Conflict], head: TableState) -> None:
        """Remember that the files rest on a newer head now."""
        self.base = head.version
        if any(conflict.verdict is Verdict.RETRY for conflict in conflicts):
            self.read_set = ReadSet(head.version)  # the operation ran again: nothing older counts

    def _take_in(
        self,
        decision: Decision,
        head: TableState,
        intent: Intent,
        status: WriteStatus,
        conflicts: list[Conflict],
    ) -> TableState:
        ended = decision.find_ended(self.instant)
        if ended is not None:
            raise Ended(decision.version, ended.reason)
        self.taken.add(decision.instant.time)
        newer = head.apply(decision, where=paths.slot(decision.version))
        if decision.instant.nonce == self.instant.nonce:  # by another process that resumed it
            raise AlreadyCommitted(decision.version)
        if newer.table.contract != self.contract:
            raise ContractChanged(newer.table.contract)
        if decision.commit_id is not None and decision.commit_id == self.commit_id:
            raise AlreadyCommitted(decision.version)
        if decision.tokens:
            self.continue_streams(newer, status.digest)
        conflict = self._decide(intent, status, decision, newer)
        if conflict is not None:
            conflicts.append(conflict)
        return newer

    def _decide(
        self, intent: Intent, status: WriteStatus, decision: Decision, state: TableState
    ) -> Conflict | None:
        keys = self._keys
        if keys is None or keys.spec is not state.table.spec:
            keys = self._keys = Keys(self.handle.store, state.table.spec, state.table.schemas)

        def compare(bucket: BucketId) -> KeyOverlap:
            try:
                return keys.met(status.changes, decision.changes, bucket)
            except CorruptMetadataError:
                # Files of ours go when somebody rolls us back: that stands in the same window.
                return UNKNOWN

        return decide(intent, decision, compare)
