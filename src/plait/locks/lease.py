"""The lock ``lease``: an object on the table's own store, swapped by comparison.

The holder renews it; one that is silent for the lease time has lost it, as judged by an observer
that saw no change for that long on its own monotonic clock. No two machines' clocks are compared:
the holder counts from before its write and gives up first, so long as clocks run within a tenth of
each other. Threads of one process queue in memory first, then one of them stands for the process.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from plait.errors import (
    ClockUnavailableError,
    CorruptMetadataError,
    LockTimeoutError,
    LockUnavailableError,
    OptionError,
    StorageError,
)
from plait.locks.port import Holder, timed_out
from plait.locks.process import fifo_lock
from plait.locks.record import BYTES_MAX, PATH, TTL_S_MAX, WAITERS_MAX, Claimant, LeaseRecord
from plait.model.contract import Option
from plait.ports import Ports
from plait.storage.port import Store

CLAIM_S = 2.0
"""Seconds for which a free lease is kept for each waiter, one after the other."""
DRIFT = 1.1
"""Factor by which an observer waits longer than the holder counts."""
_TTL = Option("lease", "time", "15s", "silence after which a holder has lost it", 0.5)
_RENEWALS = 3
_TRIES = 8
_ERRORS_MAX = 4
_POLL_S, _POLL_S_MAX = 0.02, 0.25
_log = logging.getLogger(__name__)


class LeaseLock:
    """The lease of a table. ``lock="lease"``, or ``"lease:30s"`` for another lease time."""

    name = "lease"

    def __init__(self, text: str, store: Store, ports: Ports) -> None:
        self._ttl_s = parse_lease(text)
        self._store, self._ports = store, ports
        self._clock, self._ids = ports.clock, ports.ids
        self._threads = fifo_lock(f"lease:{store.address.uri}")

    @contextmanager
    def acquire(self, *, wait_s: float, owner: str) -> Iterator[LeaseHeld]:
        """Wait for the lock; raise LockTimeoutError naming the holder."""
        deadline = self._clock.monotonic() + wait_s
        if not self._threads.acquire(owner, wait_s=wait_s):
            raise self._timed_out(wait_s)
        try:
            claim = _Claim(self._store, self._ports, self._ttl_s, owner)
            try:
                held = claim.wait(deadline)
                if held is None:
                    raise self._timed_out(wait_s)
                cancel = self._ports.background.every(self._ttl_s / _RENEWALS, held.renew)
                try:
                    yield held
                finally:
                    cancel()
            finally:
                claim.leave()
        finally:
            self._threads.release()

    def holder(self) -> Holder | None:
        """Tell who holds it now, and whether its time seems over by the store's clock."""
        try:
            body = self._store.find(PATH, size_max=BYTES_MAX)
        except CorruptMetadataError:
            body = b""
        if body is None:
            return None
        record = LeaseRecord.decode(body, ttl_s=self._ttl_s, now_ms=0)
        if record.holder is None:
            return None
        return Holder(
            record.holder.owner, record.holder.since_ms, record.token, self._silent(record)
        )

    def _silent(self, record: LeaseRecord) -> str | None:
        infos = [info for info in self._store.list(PATH.rsplit("/", 1)[0]) if info.path == PATH]
        modified_ms = infos[0].modified_ms if infos else None
        if modified_ms is None:
            return None
        try:
            silent_s = (self._store.now_ms() - modified_ms) / 1000
        except ClockUnavailableError:
            return None
        if silent_s <= record.ttl_s * DRIFT:
            return None
        return f"not renewed for {silent_s:.0f} s; its time is {record.ttl_s:g} s"

    def _timed_out(self, wait_s: float) -> LockTimeoutError:
        holder = None
        with suppress(StorageError):
            holder = self.holder()
        hint = f"increase lock.wait; a dead holder's lease is free after {self._ttl_s * DRIFT:g} s"
        lease = f"the lease of {self._store.address.uri}"
        return timed_out(lease, holder.owner if holder else None, wait_s, hint)


class _Claim:
    """One attempt to get the lease, and what it has seen of the others."""

    def __init__(self, store: Store, ports: Ports, ttl_s: float, owner: str) -> None:
        self._store, self._ttl_s, self._ports = store, ttl_s, ports
        self.clock, self._ids = ports.clock, ports.ids
        who = f"{owner} (process {os.getpid()} on {socket.gethostname()})"
        self.me = Claimant.of(ports.ids.nonce(), who)
        self.pid = os.getpid()
        self._sign: tuple[str, int, int] | None = None
        self._since = 0.0
        self._backoff = ports.backoff(_POLL_S, _POLL_S_MAX)
        self._began = 0.0
        self._wrote = False

    def wait(self, deadline: float) -> LeaseHeld | None:
        """Wait for the lease; None if others had it until the deadline."""
        errors = 0
        while True:
            try:
                held = self._try(late=self.clock.monotonic() >= deadline)
                errors = 0
            except StorageError as error:
                errors += 1
                if errors >= _ERRORS_MAX or self.clock.monotonic() >= deadline:
                    raise self._unavailable(error) from error
                held = None
            if held is not None or self.clock.monotonic() >= deadline:
                return held
            self._backoff.pause()

    def _try(self, *, late: bool) -> LeaseHeld | None:
        """Look once, and take the lease or a place in the queue."""
        body = self.find()
        if body is None:
            return self._take(None, LeaseRecord(0, self._ttl_s))
        record = self.decode(body)
        # Recognise our own grant by its nonce before anything else: otherwise a lost reply would
        # make us wait for ourselves until the lease runs out.
        if record.held_by(self.me.nonce):  # taken before, and the reply got lost
            return LeaseHeld(self, record, self._began)
        if self._may_take(record):
            return self._take(body, record)
        if not late and not record.waits(self.me.nonce) and len(record.waiters) < WAITERS_MAX:
            self.swap(body, record.joined(self.me))
        return None

    def _take(self, body: bytes | None, record: LeaseRecord) -> LeaseHeld | None:
        # The time counts from before the write. The write may land at any moment after it, and
        # observers count from after it: so the holder always gives up first.
        self._began, self._wrote = self.time_s(), True
        me = replace(self.me, since_ms=self.clock.now_ms())
        taken = record.taken(me, ttl_s=self._ttl_s)
        if body is None:
            won = self._store.put_if_absent(PATH, taken.encode(self._ids.nonce()))
        else:
            won = self.swap(body, taken)
        return LeaseHeld(self, taken, self._began) if won else None

    def _may_take(self, record: LeaseRecord) -> bool:
        """Judge by what was seen, since when, on this machine's monotonic clock."""
        now = self.clock.monotonic()
        # Silence is measured from the first look that saw this sign, by our own monotonic clock.
        # Times in the record are never compared: they are of another machine's clock.
        if record.sign != self._sign:
            self._sign, self._since = record.sign, now
            self._backoff.restart()
        patience_s = CLAIM_S * record.place_of(self.me.nonce)
        if record.holder is not None:
            patience_s += record.ttl_s * DRIFT
        return patience_s == 0 or now - self._since > patience_s

    def time_s(self) -> float:
        """Return seconds that go on while this machine is suspended, as they do for observers."""
        return self.clock.monotonic() + self.clock.asleep_s()

    def find(self) -> bytes | None:
        """Read the object; what is too large to be one is damaged."""
        try:
            return self._store.find(PATH, size_max=BYTES_MAX)
        except CorruptMetadataError as error:
            raise StorageError(error.message, hint="remove it", path=PATH) from error

    def decode(self, body: bytes) -> LeaseRecord:
        """Read a record."""
        return LeaseRecord.decode(body, ttl_s=self._ttl_s, now_ms=self._store.now_ms())

    def swap(self, body: bytes, record: LeaseRecord) -> bool:
        """Put a record in the place of the bytes that were read."""
        self._wrote = True
        return self._store.replace(PATH, record.encode(self._ids.nonce()), expected=body)

    def change(self, change: Callable[[LeaseRecord], LeaseRecord | None]) -> LeaseRecord | None:
        """Change the record, whoever else does; None if there is nothing to change."""
        backoff = self._ports.backoff(_POLL_S, _POLL_S_MAX)
        for _ in range(_TRIES):
            # Read again on each try: others join the queue and renew at any time, and the swap is
            # by comparison of all bytes.
            body = self.find()
            before = None if body is None else self.decode(body)
            after = None if before is None else change(before)
            if body is None or after is None:
                return None
            if self.swap(body, after):
                return after
            backoff.pause()
        message = f"{PATH} kept changing while it was updated"
        raise StorageError(message, hint="the update is tried again", path=PATH)

    def leave(self) -> None:
        """Let go of the lease and of the place in the queue; what fails runs out by itself."""
        if not self._wrote or self.pid != os.getpid():
            return

        def left(record: LeaseRecord) -> LeaseRecord | None:
            there = record.held_by(self.me.nonce) or record.waits(self.me.nonce)
            return record.left(self.me.nonce) if there else None

        try:
            self.change(left)
        except StorageError as error:
            _log.info("a lease was not released and will expire: %s", error)

    def _unavailable(self, error: StorageError) -> LockUnavailableError:
        message = f"the lease of {self._store.address.uri} cannot be used: {error.message}"
        return LockUnavailableError(message, hint=error.hint)


class LeaseHeld:
    """A granted lease. ``lost`` needs no look at the store: time alone can tell."""

    def __init__(self, claim: _Claim, record: LeaseRecord, since: float) -> None:
        self._claim, self._ttl_s = claim, record.ttl_s
        self._renewed, self._taken = since, ""
        self.token: int | None = record.token

    @property
    def lost(self) -> str | None:
        """Why others may hold it too: taken for good, or not renewed in time until it is."""
        if self._claim.pid != os.getpid():
            return "a forked child does not hold what its parent holds"
        if self._taken:
            return self._taken
        # Time asleep counts: observers went on counting while this machine was suspended.
        silent_s = self._claim.time_s() - self._renewed
        return f"the lease was not renewed for {silent_s:.1f} s" if silent_s > self._ttl_s else None

    def renew(self) -> None:
        """Write a sign of life; called beside the holder."""
        if self._taken or self._claim.pid != os.getpid():
            return
        began, nonce = self._claim.time_s(), self._claim.me.nonce
        renewed = self._claim.change(lambda r: r.renewed() if r.held_by(nonce) else None)
        if renewed is None:
            self._taken = "another client took the lease"
        else:
            self._renewed = began


def parse_lease(text: str) -> float:
    """Return the lease time of a lock's text; raise OptionError.

    >>> parse_lease("lease"), parse_lease("lease:500ms")
    (15.0, 0.5)
    """
    word, colon, time = text.partition(":")
    ttl_s = _TTL.parse(time if colon else _TTL.default)
    if word != LeaseLock.name or ttl_s > TTL_S_MAX:
        hint = "'lease', or with a duration of up to one hour: 'lease:30s'"
        raise OptionError(f"lock={text!r} cannot be used", hint=hint, key="lock", value=text)
    return ttl_s
