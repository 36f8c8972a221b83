"""Two detectors that know nothing of each other: journals against rows, and the timeline alone."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, cast

from plait import Table
from plait.interop.delta_log import read_mark
from plait.interop.publication import newest_metadata
from plait.model.decision import Decision
from plait.model.history import HistoryEntry
from plait.txn.conflict import touched_buckets
from tests.processes.stress.work import (
    BOTH,
    COUNTER,
    DELETE,
    GONE,
    INCREMENT,
    KEYS,
    Journal,
    key_of,
)
from tests.services.engines import DuckDB
from tests.services.engines import place as installed
from tests.support.engines import DELTA, ICEBERG, comparable

SERVICES = {"compact", "cluster", "clean", "savepoint", "archive"}
RESTORED = 3
"""So many versions a copy of the table is restored to."""


def services_in(history: Iterable[HistoryEntry]) -> dict[str, int]:
    """Count what services decided, and the commits that were carried over them."""
    entries = list(history)
    done = Counter(entry.operation for entry in entries)
    return {
        "compactions": done["compact"],
        "carried": sum("carried" in entry.client for entry in entries),
        "clusterings": done["cluster"],
        "archives": done["archive"],
        "repushes": done["repush"],
    }


def judge(table: Table, journals: list[Path]) -> dict[str, object]:
    """Check everything; give counts. Raise AssertionError naming what is wrong."""
    table.maintenance.rollback()
    report = table.check.verify(history=True)
    assert report.problems == (), report.problems[:5]
    report = table.check.verify()
    assert report.problems == (), report.problems[:5]
    lines = {path.stem: Journal(path).lines() for path in journals}
    history = list(table.inspect.timeline().decided)
    landed = _landed(history)
    every = [line for each in lines.values() for line in each]
    intents = {str(line["intent"]): line for line in every if "intent" in line}
    _no_zombies(landed, intents)
    _told_the_truth(landed, lines)
    _rows_are_those_of_the_journals(table, landed, intents)
    refusals = _refusals_are_confirmed(table, history, lines)
    _nothing_is_done_again_for_a_service(history)
    return {
        "commits": len(landed),
        "versions": table.version,
        "rebased": sum(int(str(e.client.get("rebased", 0))) for e in history),
        "reservations": sum(e.operation == "reserve" for e in history),
        **services_in(history),
        "savepoints": sum(e.action == "savepoint" for e in history),
        "rollbacks": sum(e.action == "rollback" for e in history),
        "refused": dict(refusals),
        "unknown": sum("unknown" in line for line in every),
        "windows": report.checked.get("windows", 0),
        "lost": 0,
        "twice": 0,
        "zombies": 0,
    }


def _landed(history: list[HistoryEntry]) -> dict[str, int]:
    """Give the version of each commit id, which stands once in the timeline."""
    found = [(e.commit_id, e.version) for e in history if e.commit_id is not None]
    landed = dict(found)
    assert len(landed) == len(found), "a commit id stands twice in the timeline"
    return landed


def _no_zombies(landed: dict[str, int], intents: dict[str, dict[str, object]]) -> None:
    strange = set(landed) - set(intents)
    assert not strange, f"commits that nobody meant: {sorted(strange)[:5]}"


def _told_the_truth(landed: dict[str, int], lines: dict[str, list[dict[str, object]]]) -> None:
    """INV-10: what was reported committed is, at that version."""
    for each in lines.values():
        for line in each:
            if "committed" in line:
                name = str(line["committed"])
                assert landed.get(name) == line["version"], f"{name} is not where it was reported"


def _rows_are_those_of_the_journals(
    table: Table, landed: dict[str, int], intents: dict[str, dict[str, object]]
) -> None:
    """No update lost, no row twice: the last value of each process, and the count of increments."""
    rows = table.scan().to_arrow().to_pylist()
    found = {row["id"]: row["value"] for row in rows}
    assert len(found) == len(rows), "a key is there twice"
    counted = [name for name in landed if intents[name]["kind"] in (INCREMENT, BOTH)]
    assert found.pop(COUNTER) == len(counted), "an increment was lost, or counted twice"
    expected: dict[int, int] = {}
    for name in sorted(landed, key=lambda name: int(name.split("-")[1])):
        owner, sequence = map(int, name.split("-"))
        if intents[name]["kind"] == DELETE:
            expected.pop(key_of(owner, GONE), None)
        elif intents[name]["kind"] != INCREMENT:
            expected |= {key_of(owner, key): sequence for key in range(KEYS)}
    assert found == expected, "an update was lost"


def _refusals_are_confirmed(
    table: Table, history: list[HistoryEntry], lines: dict[str, list[dict[str, object]]]
) -> Counter[str]:
    """Each refusal has its reason in the timeline, and what was refused did not land."""
    by_version = {entry.version: entry for entry in history}
    committed = {str(e.instant).rsplit("-", 1)[-1] for e in history if not e.ended}
    ended = {instant.nonce for e in history for instant in e.ended}
    counts: Counter[str] = Counter()
    for line in (line for each in lines.values() for line in each if "refused" in line):
        kind, facts = str(line["type"]), line["facts"]
        counts[kind] += 1
        assert isinstance(facts, dict)
        nonce = str(facts.get("ours") or facts.get("instant") or "").rsplit("-", 1)[-1]
        if not nonce:
            continue  # refused before it began: a store or a lock that was away
        assert nonce not in committed, f"{line} was refused, and landed"
        if kind.endswith("ConflictError"):
            winner = by_version[int(str(facts["version"]))]
            assert str(winner.instant) == facts["theirs"], f"{line}: somebody else won"
            assert winner.operation not in SERVICES, f"{line}: INV-15"
            groups = [str(name) for name in facts["file_groups"]]
            if groups:
                _reach(table, facts["versions"], groups)
            else:  # committed under another layout, where the keys were in other buckets
                swapped = [e for e in history if e.operation == "repush"]
                assert any(e.version > winner.version for e in swapped), f"{line}: no place"
        elif kind == "RolledBackError":
            assert nonce in ended, f"{line}: nobody rolled it back"
    return counts


def _nothing_is_done_again_for_a_service(history: list[HistoryEntry]) -> None:
    """INV-15: what a commit was done again for, a writer had done."""
    operations = {entry.version: entry.operation for entry in history}
    for entry in history:
        met = entry.client.get("conflicts", [])
        assert isinstance(met, list)
        theirs = {operations[int(str(each["version"]))] for each in met}
        assert not theirs or theirs - SERVICES, f"{entry}: done again because of {theirs}"


def copies_can_be_restored(uri: str, folder: Path) -> int:
    """Restore a copy to versions that are readable, and undo it; give how many there were."""
    shutil.copytree(uri, folder / "copy")
    table = Table.open(str(folder / "copy"))
    readable = range(int(str(table.inspect.describe()["horizon"])), table.version)
    targets = sorted({*readable[:: max(1, len(readable) // RESTORED)]})
    for version in targets:
        newest, then = _rows(table), _rows(table, version)
        table.versions.restore(version=version)
        assert _rows(table) == then, f"restored to {version}"
        table.versions.restore(version=table.version - 1)
        assert _rows(table) == newest, f"the restore to {version} undone"
    assert table.check.verify().problems == ()
    assert table.check.verify(history=True).problems == ()
    return len(targets)


def published_versions_are_equal(table: Table, uri: str) -> dict[str, int]:
    """Read each version that others are shown in every engine; count what was read (INV-17)."""
    assert not [each.undone for each in table.maintenance.publish().targets if each.undone]
    decided = {entry.version: str(entry.instant) for entry in table.inspect.timeline().decided}
    engines = {**DELTA}
    del engines["pyarrow"]  # it refuses deletion vectors
    counts: Counter[str] = Counter()
    with ExitStack() as stack:
        duckdb = stack.enter_context(DuckDB()) if installed().is_dir() else None
        if duckdb is not None:
            engines["duckdb"] = partial(duckdb.read, "delta")
        newest, *_ = sorted((version for _, version, _ in _shown(uri)), reverse=True)
        assert newest == table.version, "the newest version was not published"
        for number, version, instant in _shown(uri):
            assert decided[version] == instant, f"commit {number} shows what nobody decided"
            wanted = comparable(table.scan(version=version).to_arrow())
            for name, read in engines.items():
                assert comparable(read(uri, number)) == wanted, (name, number, version)
                counts[name] += 1
        found = newest_metadata(table._handle)
        assert found is not None
        place, said = found
        assert said["current-snapshot-id"] == table.version, "the newest version was not published"
        for snapshot in cast("list[dict[str, Any]]", said["snapshots"]):
            version, instant = snapshot["snapshot-id"], snapshot["summary"]["plait.instant"]
            assert decided[version] == instant, f"snapshot {version} shows what nobody decided"
            wanted = comparable(table.scan(version=version).to_arrow())
            for name, read in ICEBERG.items():
                assert comparable(read(place, version)) == wanted, (name, place, version)
                counts[f"{name} of Iceberg"] += 1
            if duckdb is not None:
                sql = f"SELECT * FROM iceberg_scan('{place}', snapshot_from_id = {version})"
                assert comparable(duckdb.query(sql)) == wanted, (place, version)
                counts["duckdb of Iceberg"] += 1
    return dict(counts)


def _shown(uri: str) -> Iterator[tuple[int, int, str]]:
    """Give the number of each commit in the log, and which version and instant it shows."""
    for file in sorted(Path(uri, "_delta_log").glob("*.json")):
        mark = read_mark(file.read_bytes().partition(b"\n")[0])
        assert mark is not None, f"{file} is nobody's"
        yield int(file.stem), mark.version, mark.instant


def _rows(table: Table, version: int | None = None) -> list[tuple[object, ...]]:
    rows = table.scan(version=version).to_arrow().to_pylist()
    return sorted(tuple(row.values()) for row in rows)


def _reach(table: Table, versions: list[int], groups: list[str]) -> None:
    """See that one of these wrote there; some may have, under another layout, where none is."""
    wrote: set[str] = set()
    for version in versions:
        decision = table._handle.cache.timeline.find(version)
        assert isinstance(decision, Decision)
        wrote |= {f"data/{number}" for _, number in touched_buckets(decision.changes)}
    assert wrote & set(groups), f"versions {versions} wrote {wrote}, not {groups}"
