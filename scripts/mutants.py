"""Put faults into the rooms that decide, one at a time, and see that the tests find each.

    python scripts/mutants.py                 # about 200 mutants of txn, timeline, services, state
    python scripts/mutants.py --only txn/     # those of one room or file
    python scripts/mutants.py --write         # the same, and write docs/operations/mutants.md
    python scripts/mutants.py --resume        # do not repeat what the last run killed
    python scripts/mutants.py --chosen         # those that scripts/mutants.toml names
    python scripts/mutants.py --chosen --sound # the same, where another check runs their tests
    python scripts/mutants.py --chosen --short # some of them

First the fast tests run once, and it is noted which test runs which line. Then each mutant is
written into a private copy of ``src``, and the tests that run its statement are run, the quick and
near ones first, until one fails. A mutant dies by a failing test, by an error, or because it takes
ten times the time of its tests. Whatever survives needs a test, or stands in
``scripts/mutants.toml`` with the reason why it changes nothing.

Why no mutation library: mutmut 3.8.1 made no mutant of a module's or a class's body (the conflict
matrix is one) and none of a function under a decorator (every property), and it changes the texts
of errors. cosmic-ray 8.7.0 runs one test command for all mutants of a session, so that each would
take the whole suite. Neither draws a sample.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from scripts.mutant_runs import Copy, Coverage, Run, cover  # noqa: E402 - not installed
from scripts.mutation import Mutant, every_mutant, sample, shown  # noqa: E402

PACKAGE = ROOT / "src" / "plait"
PAGE = ROOT / "docs" / "operations" / "mutants.md"
REASONS = ROOT / "scripts" / "mutants.toml"
ROOMS = ("txn", "timeline", "services", "state")
COUNT, SEED = 200, 10
REQUIRED = 0.95
SHORT = 6
"""Of how many chosen mutants the short form puts in one."""
INTRO = (
    "This page measures the tests. We put faults into the code that decides, one at a time: a",
    "comparison is reversed, a condition is negated, a call or a statement is removed, an error is",
    "swallowed. Then we run the tests that execute this statement, and at least one must fail.",
    "A fixed seed draws the faults from every file of the four rooms. `make mutants` repeats it.",
    "",
    "Each fault that no test found got a new test, or a reason below why it changes nothing. So",
    "the number says nothing about faults that were not drawn. To draw others, run",
    '`make mutants ARGS="--seed 11"`.',
)
KILLED, SURVIVED, EQUIVALENT, UNCOVERED = "killed", "survived", "equivalent", "no test runs it"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a mutant."""

    mutant: Mutant
    what: str
    told: str
    """The test that found it, or the reason why it is no fault."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """A mutant of the short form: a promise, and a test that sees it broken."""

    path: str
    before: str
    after: str
    tests: str


def main() -> int:
    """Run; return 0 if enough mutants died."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--chosen", action="store_true", help="those of scripts/mutants.toml")
    parser.add_argument("--short", action="store_true", help=f"one of {SHORT} of the chosen")
    parser.add_argument(
        "--sound", action="store_true", help="the tests are known to pass without a fault"
    )
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument(
        "--only", default="", help="the beginning of a path in src/plait, or a name"
    )
    parser.add_argument("--keep", action="store_true", help="take the coverage of the last run")
    parser.add_argument(
        "--resume",
        action="store_true",
        help="do not repeat what the last run killed",
    )
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    asked = parser.parse_args()
    known = tomllib.loads(REASONS.read_text("utf-8"))
    with tempfile.TemporaryDirectory(prefix="plait-mutants-") as place:
        copy = Copy(ROOT, Path(place))
        if asked.chosen:
            chosen = [Chosen(**each) for each in known["chosen"]][:: SHORT if asked.short else 1]
            tests = sorted({each.tests for each in chosen})
            require_pass(copy, tests[:1] if asked.sound else tests)
            return put_in(copy, chosen)
        began = time.monotonic()
        lines = cover(ROOT, PACKAGE, ROOMS, again=not asked.keep)
        every = every_mutant(files())
        equivalent = {each["mutant"]: each["reason"] for each in known.get("equivalent", [])}
        require_known(every, equivalent)
        mutants = [
            m for m in sample(every, asked.count, asked.seed) if m.name.startswith(asked.only)
        ]
        require_pass(copy, lines.quickest(200))
        kills = Kills(ROOT / "build" / "mutants" / "kills", resume=asked.resume)
        verdicts = [judge(copy, lines, mutant, equivalent, kills) for mutant in mutants]
    drawn = f"{len(mutants)} of {sum(map(len, every.values()))} mutants, drawn by seed {asked.seed}"
    return report(verdicts, drawn, asked.write, time.monotonic() - began)


def files() -> dict[str, Path]:
    """Return the files of the rooms by their names."""
    found = [path for room in ROOMS for path in sorted((PACKAGE / room).rglob("*.py"))]
    return {str(path.relative_to(PACKAGE)): path for path in found}


class Kills:
    """What was killed, noted as it comes: a run that was interrupted need not repeat it."""

    def __init__(self, place: Path, *, resume: bool) -> None:
        self._place = place
        if not resume:
            place.unlink(missing_ok=True)
        lines = place.read_text("utf-8").splitlines() if place.exists() else []
        self._known = dict(line.split(" ", 1) for line in lines)

    def find(self, changed: str) -> str | None:
        """Return the test that killed this very source, if one did."""
        return self._known.get(_digest(changed))

    def note(self, changed: str, test: str) -> None:
        """Note the test that killed a source."""
        with self._place.open("a", encoding="utf-8") as file:
            file.write(f"{_digest(changed)} {test}\n")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def judge(
    copy: Copy, lines: Coverage, mutant: Mutant, equivalent: dict[str, str], kills: Kills
) -> Verdict:
    """Run the tests of one mutant, and say what came of it."""
    if mutant.name in equivalent:
        return Verdict(mutant, EQUIVALENT, equivalent[mutant.name])
    changed = mutant.applied((PACKAGE / mutant.path).read_text("utf-8"))
    if test := kills.find(changed):
        return Verdict(mutant, KILLED, test)
    verdict = Verdict(mutant, UNCOVERED, "")
    with copy.changed(mutant.path, changed):
        for tests in lines.tests(mutant):
            run = Run.of(copy, tests, lines.seconds(tests))
            verdict = Verdict(mutant, KILLED if run.failed else SURVIVED, run.told)
            if run.failed:
                kills.note(changed, run.told)
                break
    print(f"{verdict.what:10} {mutant.kind:12} line {mutant.line} of {mutant.name}", flush=True)
    return verdict


def put_in(copy: Copy, chosen: Sequence[Chosen]) -> int:
    """Put in the chosen ones, and see each die by its own test."""
    wrong = list[str]()
    for each in chosen:
        if not is_there(each.tests):
            wrong.append(f"ERROR {each.tests}: there is no such test; name the one that sees it")
            continue
        source = (PACKAGE / each.path).read_text("utf-8")
        if source.count(each.before) != 1:
            wrong.append(
                f"ERROR {each.path}: {shown(each.before)!r} is not there once; choose another"
            )
            continue
        with copy.changed(each.path, source.replace(each.before, each.after)):
            run = Run.of(copy, [each.tests], seconds=10)
        change = f"{each.path}: {shown(each.before)} -> {shown(each.after)}"
        print(f"{'died' if run.failed else 'SURVIVED'}: {change}", flush=True)
        if not run.failed:
            wrong.append(f"SURVIVED {each.tests}: {change}")
    # Once more, at the end: of a long output the end is what is seen.
    print(*wrong, f"{len(chosen) - len(wrong)} of {len(chosen)} mutants died", sep="\n")
    return 1 if wrong else 0


def is_there(test: str) -> bool:
    """Tell whether a test is where its name says: pytest fails of one that is not, too."""
    path, _, names = test.partition("::")
    file = ROOT / path
    wanted = [name.partition("[")[0] for name in names.split("::") if name not in ("", "runTest")]
    return file.is_file() and all(
        re.search(rf"^ *(def|class) {name}\b|^{name} = ", file.read_text("utf-8"), re.MULTILINE)
        for name in wanted
    )


def require_known(every: dict[str, list[Mutant]], equivalent: dict[str, str]) -> None:
    """Stop if a reason is of a mutant that no longer exists: it may hide another."""
    names = {mutant.name for mutants in every.values() for mutant in mutants}
    if strange := sorted(set(equivalent) - names):
        sys.exit(f"{REASONS.name} has reasons for mutants that do not exist: {strange}")


def require_pass(copy: Copy, tests: Sequence[str]) -> None:
    """Stop if tests fail without a fault: then a mutant's death would mean nothing."""
    run = Run.of(copy, tests, seconds=60)
    if run.failed:
        output = (copy.scratch / "output").read_text("utf-8", "replace")
        sys.exit(f"the tests fail without any fault: {run.told}\n{output[-2000:]}")


def report(verdicts: Sequence[Verdict], drawn: str, write: bool, seconds: float) -> int:  # noqa: FBT001 - an option
    """Print what was found, write the page if asked; return 0 if enough died."""
    what = Counter(verdict.what for verdict in verdicts)
    faults = len(verdicts) - what[EQUIVALENT]
    score = what[KILLED] / faults if faults else 0.0
    said = (
        f"{drawn}: {what[KILLED]} of {faults} faults found ({score:.1%}), "
        f"{what[EQUIVALENT]} change nothing"
    )
    print(f"{said}; {seconds:.0f} s")
    if write:
        PAGE.write_text(page(verdicts, said), encoding="utf-8")
    return 0 if score >= REQUIRED else 1


def page(verdicts: Sequence[Verdict], said: str) -> str:
    """Return the page of results."""
    lines = [
        "<!-- made by scripts/mutants.py (make mutants); do not edit -->",
        "",
        "# Mutants",
        "",
        *INTRO,
        "",
        f"**{said}.**",
        "",
        "| room | mutants | found | change nothing | not found |",
        "|---|---|---|---|---|",
        *map(_row, ROOMS, [verdicts] * len(ROOMS)),
        "",
        *_listed("Not found", [v for v in verdicts if v.what in (SURVIVED, UNCOVERED)]),
        *_listed("Change nothing", [v for v in verdicts if v.what == EQUIVALENT]),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _row(room: str, verdicts: Iterable[Verdict]) -> str:
    what = Counter(v.what for v in verdicts if v.mutant.path.startswith(f"{room}/"))
    lost = what[SURVIVED] + what[UNCOVERED]
    return f"| `{room}` | {what.total()} | {what[KILLED]} | {what[EQUIVALENT]} | {lost} |"


def _listed(title: str, verdicts: Sequence[Verdict]) -> list[str]:
    if not verdicts:
        return []
    found = [f"- `{v.mutant.name}`: {v.told if v.what == EQUIVALENT else v.what}" for v in verdicts]
    return [f"## {title}", "", *found, ""]


if __name__ == "__main__":
    sys.exit(main())
