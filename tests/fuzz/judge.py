"""Judge one damaged table: the right answer, or an error of ours that names the file.

Runs in a process of its own, which a case may hang or blow up: one line in (a case), one line out
(what was wrong with it). What a table holds is known from who wrote it, not from Plait.
"""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import stat
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict

from plait import Table
from plait.errors import TableError
from tests.fuzz.damage import DAMAGES, FORGED, Case, flip
from tests.fuzz.tables import Row, rows_of

ADDRESS_BYTES_MAX = 6 << 30
"""What ends a process that grows without bound before the machine does."""
MEMORY_BYTES_MAX = 512 << 20
CLOCK_S_MAX = 200_000_000_000
ADDED: Row = (70, "a", 7)


@dataclass
class Verdict:
    """What was wrong."""

    case: Case
    damage: str
    kind: str
    model: dict[str, object]
    problems: list[str] = field(default_factory=list)
    refused: int = 0

    @property
    def forged(self) -> bool:
        return self.damage in FORGED

    def run(self, name: str, act: Callable[[], str | None]) -> None:
        """Run one step; it gives what is wrong with its answer."""
        try:
            wrong = act()
        except TableError as error:
            self.refused += 1
            wrong = str(error)[:200] if self._free else self._unnamed(error)
        except BaseException as error:  # noqa: BLE001 - a foreign one is what is looked for
            last = traceback.extract_tb(error.__traceback__)
            where = next((f for f in reversed(last) if "plait/" in f.filename), last[-1])
            wrong = f"{type(error).__name__}: {str(error)[:200]} at {where.filename}:{where.lineno}"
            self.problems.append(f"{name}: foreign {wrong}")
            return
        if wrong and not self.forged:
            self.problems.append(f"{name}: {wrong}")

    def _unnamed(self, error: TableError) -> str | None:
        """Tell if an error names neither the file nor what was put in its place."""
        text = f"{error} {error.facts}"
        names = {self.case.path, self.case.other or self.case.path}
        if self.damage == "link_folder":
            names = {self.case.path.rpartition("/")[0]}
        if any(name in text for name in names):
            return None
        return f"unnamed {type(error).__name__}: {str(error)[:200]}"

    @property
    def _free(self) -> bool:
        """Whether the damage may cost time only: then an error of ours is wrong too."""
        return self.damage == "lie" and self.kind == "checkpoint"

    @property
    def _undetectable(self) -> bool:
        """Whether the newest decision went without a trace: then an older table is left."""
        return self.damage == "remove" and self.kind == "slot newest"


class Judge:
    """The steps of one case."""

    def __init__(self, verdict: Verdict) -> None:
        self.verdict, self.root = verdict, verdict.case.root
        self.at = {
            int(k): [tuple(r) for r in v]  # type: ignore[misc]
            for k, v in verdict.model["at"].items()  # type: ignore[attr-defined]
        }
        self.head = max(self.at)

    def open(self) -> Table:
        return Table.open(self.root)

    def rows(self, table: Table, **how: object) -> Counter[tuple[object, ...]]:
        found = table.scan(**how).to_arrow().to_pylist()  # type: ignore[arg-type]
        return Counter(tuple(row.values()) for row in found)

    def head_is_right(self) -> str | None:
        table = self.open()
        version = table.version
        if version != self.head and not self.verdict._undetectable:
            return f"version {version}, not {self.head}"
        return self.differs(self.rows(table), version)

    def filtered_is_right(self) -> str | None:
        table = self.open()
        wanted = Counter(row for row in self.at[table.version] if row[0] < 20)
        found = self.rows(table, where="id < 20")
        return None if found == wanted else f"filter: {len(found)} rows, not {len(wanted)}"

    def look_ups_are_right(self) -> str | None:
        table = self.open()
        for key in range(0, 40, 9):
            wanted = Counter(row for row in self.at[table.version] if row[0] == key)
            found = self.rows(table, where=f"id = {key}")
            if found != wanted:
                return f"look-up of {key}: {len(found)} rows, not {len(wanted)}"
        return None

    def past_is_right(self) -> str | None:
        version = self.head - 2
        return self.differs(self.rows(self.open(), version=version), version)

    def changes_are_right(self) -> str | None:
        table, since = self.open(), self.head - 2
        version = table.version
        rows = Counter(self.at[since])
        for change in table.changes(since=since).to_arrow().to_pylist():
            kind = change.pop("_change_type")
            row = tuple(change[name] for name in ("id", "place", "v"))
            rows[row] += -1 if kind in ("delete", "update_preimage") else 1
        return self.differs(+rows, version) if since <= version else None

    def history_is_right(self) -> str | None:
        table = self.open()
        found = sorted(entry.version for entry in table.inspect.history())
        named = sorted(entry.version for entry in table.inspect.timeline().decided)
        wanted = list(range(table.version + 1))
        return None if found == named == wanted else f"history: {found}, not {wanted}"

    def write_is_right(self) -> str | None:
        table = self.open()
        before = table.version
        if self.verdict.model["keyed"]:
            table.upsert(rows_of([ADDED]))
        else:
            table.append(rows_of([ADDED]))
        found = self.rows(self.open())
        wanted = Counter([*self.at[before], ADDED])
        self.at[table.version] = list(wanted.elements())  # type: ignore[arg-type]
        return None if found == wanted else f"after a write {len(found)} rows, not {len(wanted)}"

    def clean_is_right(self) -> str | None:
        table = self.open()
        version = table.version
        wanted = Counter(self.at.get(version, ())) if version in self.at else None
        table.maintenance.clean()
        found = self.rows(self.open())
        if wanted is not None and found != wanted:
            return f"after a clean {len(found)} rows, not {len(wanted)}"
        return None

    def verify_ends(self) -> None:
        self.open().check.verify(history=True)

    def differs(self, found: Counter[tuple[object, ...]], version: int) -> str | None:
        wanted = Counter(self.at.get(version, ()))
        if found == wanted:
            return None
        return f"version {version}: lost {list(wanted - found)[:3]}, new {list(found - wanted)[:3]}"

    def steps(self) -> dict[str, Callable[[], str | None]]:
        return {
            "head": self.head_is_right,
            "filter": self.filtered_is_right,
            "look-ups": self.look_ups_are_right,
            "past": self.past_is_right,
            "changes": self.changes_are_right,
            "history": self.history_is_right,
            "write": self.write_is_right,
            "clean": self.clean_is_right,
            "verify": self.verify_ends,
        }


class Answer(TypedDict):
    """What was wrong, and how many steps an error of ours refused."""

    problems: list[str]
    refused: int


def judge(task: dict[str, object]) -> Answer:
    """Damage a copy of a table and try everything on it."""
    root, outside = str(task["root"]), str(task["outside"])
    shutil.rmtree(root, ignore_errors=True)
    shutil.rmtree(outside, ignore_errors=True)
    # Plait puts a new file in the place of an old one, so that copies can share what is whole.
    shutil.copytree(str(task["source"]), root, copy_function=os.link)
    shutil.copytree(str(task["precious"]), outside)
    draw = random.Random(str(task["seed"]))
    case = Case(root, str(task["path"]), draw, list(task["others"]), list(task["foreign"]), outside)  # type: ignore[call-overload]
    verdict = Verdict(case, str(task["damage"]), str(task["kind"]), dict(task["model"]))  # type: ignore[call-overload]
    before = look(case)
    case.own(case.path)
    DAMAGES[verdict.damage](case)
    if look(case) == before:  # it is drawn so that nothing came of it, such as a swap of twins
        flip(case)
    if look(case) == before:
        verdict.problems.append("nothing was damaged")
    for name, act in Judge(verdict).steps().items():
        verdict.run(name, act)
    if listing(outside) != listing(str(task["precious"])):
        verdict.problems.append("files outside the table were changed")
    return {"problems": verdict.problems, "refused": verdict.refused}


def look(case: Case) -> tuple[object, ...]:
    """Return what tells a damaged file from a whole one."""
    try:
        facts = case.file.lstat()
    except OSError as error:
        return (error.errno,)
    small = stat.S_ISREG(facts.st_mode) and facts.st_size < ADDRESS_BYTES_MAX
    body = case.file.read_bytes() if small else b""
    folder = case.file.parent.is_symlink()
    return facts.st_mode, facts.st_size, facts.st_mtime > CLOCK_S_MAX, folder, body


def peak_bytes() -> int:
    """Return the most memory that this process ever held; a parent's does not count."""
    status = Path("/proc/self/status")
    if status.exists():
        found = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(found.split()[1]) << 10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def listing(root: str) -> dict[str, bytes | None]:
    """Read everything below a directory."""
    return {
        str(path.relative_to(root)): path.read_bytes() if path.is_file() else None
        for path in sorted(Path(root).rglob("*"))
    }


def main() -> None:
    """Judge cases, a line each, until there are no more."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_BYTES_MAX, ADDRESS_BYTES_MAX))
    for line in sys.stdin:
        answer, peak = judge(json.loads(line)), peak_bytes()
        # Of this process alone: a test that judges in its own holds what others left there.
        more = [f"memory: {peak >> 20} MiB"] if peak > MEMORY_BYTES_MAX else []
        problems = [*answer["problems"], *more]
        print(json.dumps({"problems": problems, "refused": answer["refused"], "peak": peak}))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
