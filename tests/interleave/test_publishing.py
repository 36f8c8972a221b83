"""INV-17 under the scheduler: what is published is right whenever somebody may look at it.

Two publishers of both formats, and beside one a clean, a writer, a repush, a restore or a foreign
writer. Longer schedules with crashes, lost replies and late writes are drawn from seeds in
``test_seeds.py``, as those of all scenarios are.
"""

from __future__ import annotations

import pytest

from plait.interop.delta_log import DeltaLog
from plait.interop.iceberg_metadata import MetadataDirectory
from plait.services.maintenance import clean as cleaning
from tests.interleave.publishing import publishing
from tests.scheduler import explore_all

SHORT = {
    "two publishers that lag": lambda: publishing("pq", lag=1),
    "a publisher and a foreign writer": lambda: publishing("px", lag=1, targets=("delta",)),
    "a writer and a publisher": lambda: publishing("bp", deletes="vectors"),
    "a publisher and a clean": lambda: publishing("pk", lag=1),
}
LONGER = {
    "a foreign writer and a writer": lambda: publishing("ax", interval=1),
    "a foreign writer, a writer and a clean": lambda: publishing("axk", targets=("delta",)),
    "two writers": lambda: publishing("ab"),
    "a writer and a clean": lambda: publishing("ak", lag=1),
    "a restore and a clean": lambda: publishing("kt", interval=1),
    "two cleans": lambda: publishing("kl", lag=1),
    "a publisher and a repush": lambda: publishing("pr", kind="cow"),
}
"""Each but the first takes ten seconds and more."""


@pytest.mark.parametrize("name", SHORT)
def test_whatever_is_published_is_right_at_every_moment_of_every_short_order(name: str) -> None:
    """INV-05, INV-17."""
    report = explore_all(SHORT[name](), switches=1)
    assert report.failure is None, str(report.failure)
    assert report.complete
    assert report.schedules > 10


@pytest.mark.long(1)
@pytest.mark.parametrize("name", LONGER)
def test_whatever_is_published_is_right_beside_those_who_decide(name: str) -> None:
    """INV-05, INV-17: every short order, each of which takes longer."""
    report = explore_all(LONGER[name](), switches=1)
    assert report.failure is None, str(report.failure)
    assert report.complete
    assert report.schedules > 20


_put = DeltaLog.put
BROKEN = {
    "a clean takes no version out before its files go": (
        cleaning,
        "trim_published",
        lambda *_: None,
        lambda: publishing("k", kind="cow"),
    ),
    "a clean does not wait for a publication that lags": (
        cleaning,
        "publish_before_clean",
        lambda _: None,
        lambda: publishing("k", kind="cow", lag=1),
    ),
    "a number that was lost is taken for won": (
        DeltaLog,
        "put",
        lambda self, *given: _put(self, *given) or True,
        lambda: publishing("ax", targets=("delta",)),
    ),
    "the hint is set back": (
        MetadataDirectory,
        "point_to",
        lambda self, number: self._store.put("metadata/version-hint.text", str(number).encode()),
        lambda: publishing("ak", lag=1, targets=("iceberg",)),
    ),
}


@pytest.mark.long(2)
@pytest.mark.parametrize("rule", BROKEN)
def test_a_rule_of_publishers_left_out_is_found(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, instead, make = BROKEN[rule]
    monkeypatch.setattr(owner, name, instead)
    assert explore_all(make(), switches=1).failure is not None
