"""What a store can really do, found by racing real calls.

The probe can show that a store is unfit, never prove that it is fit. So its word only takes
away: a store may be written when its kind is known to have an atomic put-if-absent (or the user
declared so) and the probe saw nothing against it.

The result is kept under ``.meta/hints/``, one file a host and library, so that the next process
on this host need not probe again. It is trusted only there, and only when it says "fit": a
missing, damaged or foreign one, or a "no", costs another probe. A false "fit" does no more than
skipping the probe would: the kind is known all the same.
"""

from __future__ import annotations

import hashlib
import json
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from plait.errors import StorageError, TableError
from plait.model.plain import Plain
from plait.ports import SystemIds
from plait.storage.memory import in_this_process
from plait.storage.port import Store
from plait.storage.race import BEFORE, RaceResult, race_processes, race_threads

PROBE_VERSION = 2
ROUNDS, PROCESSES = 12, 2
HINTS = ".meta/hints"
_HINT_BYTES_MAX = 64 << 10
_HINT_AGE_MS_MAX = 30 * 24 * 3600 * 1000
_KNOWN: dict[tuple[str, str], ProbeReport] = {}
_KNOWN_MAX = 1_000
_MUTEX = threading.Lock()


@dataclass(frozen=True, slots=True)
class ProbeReport(Plain):
    """What a probe saw. Each answer is "nothing seen against it", not a proof."""

    one_winner: bool
    """Whether exactly one of the callers that raced for a name was told that it won."""
    whole: bool
    """No reader saw a part of a file."""
    reads_fresh: bool
    """Another client read a file as soon as it was written, though it had looked before."""
    lists_fresh: bool
    """Another client listed a file as soon as it was written, though it had looked before."""
    processes: int
    """How many processes raced; 0 if none could be started, or the store is not shared."""
    swaps: bool = False
    """Whether exactly one of the callers that raced to replace a content was told that it did."""
    notes: tuple[str, ...] = ()

    @property
    def fit(self) -> bool:
        """Whether nothing speaks against writing a table here."""
        return self.one_winner and self.whole and self.fresh

    @property
    def fresh(self) -> bool:
        """Whether each read and listing saw what was written before."""
        return self.reads_fresh and self.lists_fresh


PASSED = ProbeReport(
    one_winner=True, whole=True, reads_fresh=True, lists_fresh=True, processes=0, swaps=True
)
"""What a probe would say of a server that needs none."""


@dataclass(frozen=True, slots=True)
class ProbeSubject:
    """A store to be probed, and how its result is recognised again."""

    store: Store
    reopen: Callable[[], Store]
    """Opens the same place anew, sharing no cache."""
    adapter: str
    """Library and versions."""
    place: str
    """Server and bucket, and who asks."""
    host: str = field(default_factory=socket.gethostname)


def run_probe(store: Store, *, reopen: Callable[[], Store]) -> ProbeReport:
    """Race real calls in a scratch directory below ``.meta/hints/``, and remove it.

    Raises:
        StorageError: the store cannot be written at all.
    """
    scratch = f"{HINTS}/probe-{SystemIds().nonce()}"
    alone = in_this_process(store.address)
    others = [reopen() for _ in range(4)]
    try:
        threads = race_threads(others, f"{scratch}/t", rounds=ROUNDS, name="thread")
        processes = None if alone else _race_processes(store, f"{scratch}/p")
        reads, lists = _fresh(store, others[0], f"{scratch}/f")
        swaps = threads.fair and _swaps(others, f"{scratch}/s")
    finally:
        _remove(store, scratch)
    races = [race for race in (threads, processes) if race is not None]
    notes = [error for race in races for error in race.errors][:5]
    complete = alone or processes is not None
    if not complete:
        notes.append("no processes could be started to race")
    return ProbeReport(
        one_winner=complete and all(race.winners and race.fair for race in races),
        whole=not any(race.torn for race in races),
        reads_fresh=reads,
        lists_fresh=lists,
        processes=PROCESSES if processes is not None else 0,
        swaps=swaps,
        notes=tuple(notes),
    )


def _swaps(stores: list[Store], prefix: str) -> bool:
    """Tell whether a swap has one winner, and none when something else is expected."""
    if not race_threads(stores, prefix, rounds=ROUNDS, name="swap", swap=True).fair:
        return False
    try:
        return not stores[0].replace(f"{prefix}/0", b"late", expected=BEFORE)
    except StorageError:
        return False


def _race_processes(store: Store, prefix: str) -> RaceResult | None:
    return race_processes(store.address, prefix, rounds=ROUNDS, processes=PROCESSES)


def _fresh(store: Store, other: Store, prefix: str) -> tuple[bool, bool]:
    reads = lists = True
    for number in range(ROUNDS):
        path = f"{prefix}/{number}/x"
        folder = f"{prefix}/{number}"
        reads = reads and other.find(path) is None
        lists = lists and not list(other.list(folder))
        store.put(path, b"here")
        reads = reads and other.find(path) == b"here"
        lists = lists and [info.path for info in other.list(folder)] == [path]
    return reads, lists


def _remove(store: Store, scratch: str) -> None:
    try:
        store.delete([info.path for info in store.list(scratch)])
    except StorageError:  # litter among the hints harms nobody
        return


def establish(subject: ProbeSubject) -> ProbeReport:
    """Return the report that holds here: this process's, this host's hint, or a new probe's."""
    key = (subject.adapter, subject.place)
    with _MUTEX:  # one probe at a time: others in this process wait for its result
        known = _KNOWN.get(key)
        if known is not None:
            return known
        report = _find_hint(subject) or prove(subject)
        if report.fit:
            if len(_KNOWN) >= _KNOWN_MAX:
                _KNOWN.clear()
            _KNOWN[key] = report
    return report


def prove(subject: ProbeSubject) -> ProbeReport:
    """Probe anew, and keep the result for the processes of this host."""
    report = run_probe(subject.store, reopen=subject.reopen)
    _write_hint(subject, report)
    return report


def hint_path(subject: ProbeSubject) -> str:
    """Name the hint of a host and library."""
    mark = "\n".join((str(PROBE_VERSION), subject.host, subject.adapter, subject.place))
    return f"{HINTS}/store-{hashlib.sha256(mark.encode()).hexdigest()[:16]}.json"


def _find_hint(subject: ProbeSubject) -> ProbeReport | None:
    try:
        body = subject.store.find(hint_path(subject), size_max=_HINT_BYTES_MAX)
        document = json.loads(body or b"null")
        if document["host"] != subject.host or document["adapter"] != subject.adapter:
            return None
        recorded = document["report"]
        answers = [recorded[k] for k in ("one_winner", "whole", "reads_fresh", "lists_fresh")]
        report = replace(
            PASSED, processes=int(recorded["processes"]), swaps=recorded["swaps"] is True
        )
    except (TableError, ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None
    return report if all(answer is True for answer in answers) else None


def _write_hint(subject: ProbeSubject, report: ProbeReport) -> None:
    document = {"host": subject.host, "adapter": subject.adapter, "report": report.to_dict()}
    try:
        subject.store.put(hint_path(subject), json.dumps(document, indent=1).encode())
        oldest_ms = subject.store.now_ms() - _HINT_AGE_MS_MAX
        old = [
            info.path
            for info in subject.store.list(HINTS)
            if info.path.startswith(f"{HINTS}/store-")
            and info.path.count("/") == HINTS.count("/") + 1
            and info.modified_ms is not None
            and info.modified_ms < oldest_ms
        ]
        subject.store.delete(old)
    except StorageError:  # without a hint the next process probes again
        return
