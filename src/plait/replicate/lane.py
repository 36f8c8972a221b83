"""One sink in one task: a thread that sends it batches in order, and tries again what failed."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Literal

import pyarrow as pa

from plait.errors import OptionError, Retry, TableError, redacted
from plait.model.plain import Plain
from plait.ports import Ports
from plait.replicate.sink import Sink, SinkSchema, SinkSession

_SHOWN: Final = 500


@dataclass(frozen=True, slots=True)
class Retries:
    """How often, and for how long, a batch is sent to a sink again."""

    attempts: int = 5
    """How often a batch is sent at most."""
    pause_s: float = 0.1
    """The first pause; each is about twice as long as the one before."""
    pause_s_max: float = 5.0
    deadline_s: float = 60.0
    """No attempt begins later than this after the first."""

    def __post_init__(self) -> None:
        """Refuse values that make no sense; raise OptionError."""
        if self.attempts < 1 or not 0 < self.pause_s <= self.pause_s_max or self.deadline_s < 0:
            hint = "attempts >= 1, 0 < pause_s <= pause_s_max, deadline_s >= 0"
            raise OptionError(f"invalid {self}", hint=hint, key="retries", value=str(self))


@dataclass(frozen=True, slots=True)
class SinkOutcome(Plain):
    """What became of the last batch at one sink, and of those before."""

    sink: str
    state: Literal["held", "failed", "silent"]
    """``silent``: it has not answered; it may hold the batch now, or later."""
    batches: int
    """How many batches the sink has acknowledged."""
    attempts: int = 1
    """How often the last batch was sent."""
    error: str = ""


@dataclass(frozen=True, slots=True)
class Batch:
    """Records to put, or keys to remove."""

    rows: pa.RecordBatch
    removes: bool = False


class _StoppedError(Exception):
    """The write has failed, so nothing more is sent."""


class Ask(Enum):
    """What a lane is asked for beside batches."""

    OPEN = auto()
    FLUSH = auto()


class Lane:
    """Sends batches to one sink, one after the other, in a thread of its own."""

    def __init__(self, sink: Sink, schema: SinkSchema, retries: Retries, ports: Ports) -> None:
        self.sink = sink
        self.batches = 0
        """How many batches the sink has acknowledged."""
        self._schema, self._retries, self._ports = schema, retries, ports
        self._work: queue.SimpleQueue[tuple[Batch | Ask, Future[SinkOutcome]] | None] = (
            queue.SimpleQueue()
        )
        self._session: SinkSession | None = None
        self._stopped = threading.Event()
        self._last: Future[SinkOutcome] | None = None
        self._buffers = buffers(sink)
        self._pending: list[Batch] = []
        """Batches since the last flush of a sink that buffers; a new session gets them again."""
        # A daemon: a sink that never answers must not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name=f"plait-{sink.name}", daemon=True)
        self._thread.start()

    def send(self, batch: Batch | Ask) -> Future[SinkOutcome]:
        """Have a batch sent after those before, a session opened, or what was sent flushed.

        The future never has an exception.
        """
        future: Future[SinkOutcome] = Future()
        self._last = future
        self._work.put((batch, future))
        return future

    def stop(self) -> None:
        """Begin nothing more: no batch, and no other attempt of the one that is under way."""
        self._stopped.set()

    @property
    def under_way(self) -> bool:
        """Whether the sink has not answered yet: it may take what was sent, now or later."""
        return self._last is not None and not self._last.done()

    def when_quiet(self, then: Callable[[], None]) -> None:
        """Call something once the sink has answered, from the thread that heard it."""
        if self._last is not None:
            self._last.add_done_callback(lambda _: then())

    def close(self, wait_s: float) -> None:
        """Close the session after the batches that were sent, waiting at most so long."""
        self._work.put(None)
        self._thread.join(wait_s)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            batch, future = work
            future.set_result(self._deliver(batch))
        self._hang_up()

    def _deliver(self, batch: Batch | Ask) -> SinkOutcome:
        clock = self._ports.clock
        backoff = self._ports.backoff(self._retries.pause_s, self._retries.pause_s_max)
        until = clock.monotonic() + self._retries.deadline_s
        for attempt in range(1, self._retries.attempts + 1):
            try:
                self._require_going()
                self._give(batch)
            except BaseException as error:  # noqa: BLE001 - its outcome; no signal comes here
                self._hang_up()
                last = attempt == self._retries.attempts or clock.monotonic() >= until
                last = last or self._stopped.is_set()
                if last or (isinstance(error, TableError) and error.retry is Retry.NEVER):
                    return self._outcome("failed", attempt, error)
            else:
                return self._outcome("held", attempt)
            backoff.pause(max(0.0, until - clock.monotonic()))
        message = "a loop of at least one attempt ended"  # unreachable: the last attempt returns
        raise AssertionError(message)

    def _give(self, batch: Batch | Ask) -> None:
        session = self._session
        if session is None:
            session = self._session = self.sink.open(self._schema)
            for earlier in self._pending:
                self._require_going()
                _hand(session, earlier)
        if isinstance(batch, Batch):
            _hand(session, batch)
            if self._buffers:
                self._pending.append(batch)
                return
            session.flush()
            self.batches += 1
        elif batch is Ask.FLUSH and self._pending:
            session.flush()
            self.batches += len(self._pending)
            self._pending = []

    def _require_going(self) -> None:
        """Raise once the write has failed: what is sent now would come after newer rows."""
        if self._stopped.is_set():
            raise _StoppedError

    def _hang_up(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            with contextlib.suppress(BaseException):  # a broken connection may not even close
                session.close()

    def _outcome(
        self, state: Literal["held", "failed"], attempts: int, error: BaseException | None = None
    ) -> SinkOutcome:
        text = "" if error is None else redacted(f"{type(error).__name__}: {error}")[:_SHOWN]
        return SinkOutcome(self.sink.name, state, self.batches, attempts, text)


def _hand(session: SinkSession, batch: Batch) -> None:
    if batch.removes:
        session.batch_remove(batch.rows)
    else:
        session.batch_put(batch.rows)


def buffers(sink: Sink) -> bool:
    """Tell whether a sink takes many batches before it acknowledges them together."""
    return bool(getattr(sink, "buffers", False))
