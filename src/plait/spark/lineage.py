"""Which version of a table a DataFrame was computed from, as far as Spark tells.

``DataFrame.inputFiles()``, which classic and Connect sessions have, names the files of a plan.
Files of a table have names of their own, so those that belong to scans that this process still
holds tell which scans the plan reads. Nothing is asked of Spark while no scan of the table is held.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plait.model.decision import ReadSet
from plait.read.scan import Scan
from plait.spark.scan import held_scans

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def find_reads(frame: DataFrame, uri: str) -> tuple[Scan, ...]:
    """Return the scans of a table that a DataFrame reads; () if none is known.

    A file may belong to scans of several versions. A version whose scans have all the files that
    the plan reads counts, the oldest of those that do; if none has them all, every version that
    fits may be in the plan.
    """
    scans = [scan for scan in held_scans() if scan.store.spec.uri == uri]
    if not scans:
        return ()
    present = {_name(path) for path in frame.inputFiles()}
    fitting = [(scan, names) for scan in scans if (names := _names(scan)) and names <= present]
    by_version: dict[int, set[str]] = {}
    for scan, names in fitting:
        by_version.setdefault(scan.version, set()).update(names)
    every = set().union(*by_version.values())
    whole = [version for version, names in by_version.items() if names == every]
    return tuple(s for s, _ in fitting if not whole or s.version == min(whole))


def read_set_of(scans: tuple[Scan, ...]) -> ReadSet | None:
    """Return what rows that were computed from scans rest on; None if there are none."""
    if not scans:
        return None
    return ReadSet(min(s.version for s in scans), tuple(s.read_predicate for s in scans))


def _names(scan: Scan) -> set[str]:
    return {_name(path) for path in scan.plan.files["path"].to_pylist()}


def _name(path: str) -> str:
    return path.rsplit("/", 1)[-1]
