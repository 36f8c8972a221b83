"""Actors of the interleaving tests, the tables they start from, and what must be left of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

from plait.errors import InstantExpiredError
from plait.model.bucket import UNKEYED, BucketId
from plait.model.decision import CommitResult, Token
from plait.model.instant import Operation
from plait.services.rollback import roll_back_failed
from plait.services.upkeep import after_commit
from plait.services.verify import verify
from plait.state.cache import StateCache
from plait.testing import SimClock
from plait.testing.scheduler import Act, End, Oracle, Start
from plait.timeline import paths
from plait.timeline.pending import load_pending
from plait.txn.lease import TTL_S, Lease
from plait.txn.site import Site
from plait.txn.transaction import Transaction
from tests.support.protocol import Hand, Work, client, create, marks_of, memory, upsert

LITTLE = {"clean.retain.time": "0s", "clean.retain.versions": "1"}
WRITES = (Operation.UPSERT.value, Operation.APPEND.value)
DAY_MS = 86_400_000


@dataclass(frozen=True)
class Writer:
    """Writes into some buckets."""

    mark: str
    buckets: tuple[int, ...] = (0,)
    on_conflict: str = "raise"
    kind: type[Transaction] = Transaction
    hand: type[Hand] = Hand
    tokens: tuple[Token, ...] = ()

    def __call__(self, site: Site) -> CommitResult:
        return self.begin(site).commit()

    def begin(self, site: Site) -> Work:
        unkeyed = self.buckets == (UNKEYED,)
        places: list[BucketId] = [((), number) for number in self.buckets]
        return Work.begin(
            site,
            places,
            mark=self.mark,
            on_conflict=self.on_conflict,
            operation=Operation.APPEND if unkeyed else Operation.UPSERT,
            kind=self.kind,
            hand=self.hand,
            tokens=self.tokens,
        )


class Keeper(Writer):
    """Writes, then does what comes along with writing: a checkpoint each time."""

    def __call__(self, site: Site) -> CommitResult:
        result = super().__call__(site)
        after_commit(site)
        return result


def retrying(mark: str, *buckets: int) -> Writer:
    return Writer(mark, buckets or (0,), "retry")


def recover(site: Site) -> object:
    """Take everybody for dead."""
    return roll_back_failed(site, reason="taken for dead", everything=True)


def recover_dead(site: Site) -> object:
    """Take for dead who was silent for too long."""
    return roll_back_failed(site, reason="was silent")


def fresh(site: Site) -> None:
    """Open the table as a new client, and read it."""
    read(replace(site, cache=StateCache(site.store, site.ports)))


def read(site: Site) -> str:
    """Read as a scan does: lease, head, files; only a lease that failed or ran out excuses one."""
    began_ms = site.store.now_ms()
    lease = Lease(site, site.cache.known().version)
    try:
        needed = site.cache.snapshot().files["path"].to_pylist()
        missing = [path for path in needed if site.store.find(path) is None]
        assert not missing or _unprotected(site, lease, began_ms), f"a reader misses {missing}"
    finally:
        lease.release()
    return "late" if missing else "read"


def _unprotected(site: Site, lease: Lease, began_ms: int) -> bool:
    """Tell whether nobody need have spared what a reader needs: no lease, or none any more."""
    return lease._cancel is None or site.store.now_ms() - began_ms > TTL_S * 1000


def travel(site: Site) -> str:
    """Read the version that is known, however old; that it was cleaned is an answer."""
    began_ms = site.store.now_ms()
    version = site.cache.known().version
    lease = Lease(site, version)
    try:
        needed = site.cache.snapshot(version=version).files["path"].to_pylist()
        missing = [path for path in needed if site.store.find(path) is None]
        excused = not missing or _unprotected(site, lease, began_ms)
        assert excused, f"a reader of version {version} misses {missing}"
    except InstantExpiredError:
        return "expired"
    finally:
        lease.release()
    return "late" if missing else "read"


def look(site: Site) -> None:
    """Verify beside the others: what they are doing is no damage."""
    report = verify(site, data=False)
    assert report.problems == ()


@cache
def start(writes: int = 0, *, keyed: bool = True, interval: int = 50) -> Start:
    """Make a table with some writes in bucket 0, once."""
    clock = SimClock()
    store = memory(clock)
    create(store, keyed=keyed, properties={**LITTLE, "checkpoint.interval": str(interval)})
    site = client(store, clock, nonces="8")
    states = [site.cache.refresh()]
    for number in range(writes):
        upsert(site, 0, mark=f"old{number}")
        after_commit(site)
        states.append(site.cache.known())
    return replace(Start.of(store), states=tuple(states))


def write_on(site: Site) -> object:
    """Write where everybody wrote."""
    return upsert(site, 0, 1, mark="next", on_conflict="retry")


def append_on(site: Site) -> object:
    return Writer("next", (UNKEYED,))(site)


def oracle(*, keyed: bool = True) -> Oracle:
    return Oracle(next_write=write_on if keyed else append_on)


@dataclass(frozen=True)
class Check:
    """The marks in the files are those of the commits on the timeline, and nothing is damaged."""

    actors: Mapping[str, Act]
    old: int
    verified: bool = True
    """Whether verify looks too: it finds nothing that the oracle does not, and takes longer."""

    def __call__(self, end: End) -> None:
        site = end.site()
        rows = site.cache.refresh().commits(end.store)
        entries = rows.select(["instant", "operation"]).to_pylist()
        nonces = {e["instant"].rsplit("-", 1)[-1] for e in entries if e["operation"] in WRITES}
        expected = [f"old{number}" for number in range(self.old)]
        for name, act in self.actors.items():
            begun = end.outcomes[name].nonces
            if isinstance(act, Writer) and any(nonce.startswith(begun) for nonce in nonces):
                expected += [act.mark] * len(act.buckets)
        found = marks_of(site)
        assert found == sorted(expected), f"{found} are there, {sorted(expected)} were committed"
        if not self.verified:
            return
        report = verify(client(end.store), data=False)
        assert report.problems == (), str(report.problems[:3])
        if any(each.hurt for each in end.outcomes.values()):
            return
        unnamed = [n for n in report.notes if not n.path.startswith(paths.CHECKPOINTS)]
        assert unnamed == [], str(unnamed)
        assert load_pending(end.store) == []
