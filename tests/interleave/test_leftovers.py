"""What the dead leave goes, whatever the order: recovery and a clean leave no trace of them."""

from __future__ import annotations

from collections.abc import Callable

from plait.services.maintenance.clean import clean
from plait.timeline import paths
from plait.txn.recovery import roll_back_failed
from tests.interleave.actors import Writer, oracle, read, recover, start
from tests.scheduler import End, Scenario, explore_all
from tests.support.effort import share

LONG_S = 86_400.0


def nothing_in(*directories: str) -> Callable[[End], None]:
    def check(end: End) -> None:
        end.world.advance(LONG_S)
        handle = end.handle()
        roll_back_failed(handle, reason="long after", everything=True)
        clean(handle)
        left = [info.path for each in directories for info in end.store.list(each)]
        assert left == [], f"left behind: {left}"

    return check


def test_records_and_heartbeats_of_the_dead_go() -> None:
    """INV-06: a writer that was taken for dead beats once more after its records went, and dies."""
    made = Scenario(
        "a writer taken for dead, which dies",
        start(1),
        {"a": Writer("a"), "d": recover},
        check=nothing_in(paths.PENDING, paths.MANIFESTS, paths.HEARTBEATS),
        events=("crash_before",),
        beats=1,
        oracle=oracle(),
    )
    report = explore_all(made, switches=1, events=share(2))
    assert report.complete
    assert report.failure is None, str(report.failure)


def test_the_lease_of_a_dead_reader_goes() -> None:
    made = Scenario(
        "a reader that dies",
        start(1),
        {"f": read},
        check=nothing_in(paths.LEASES),
        events=("crash_before",),
        oracle=oracle(),
    )
    report = explore_all(made, switches=0, events=1)
    assert report.failure is None, str(report.failure)
