"""Kill every operation at each of its storage calls; write down what is left.

The page says for each call what a reader sees if the process dies there, what lies around, and
who removes it. ``--check`` only compares; ``--short`` does so for one of so many operations.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from plait import Table  # noqa: E402 - the tests' operations are not installed
from plait.errors import TableNotFoundError  # noqa: E402
from plait.storage import open_store  # noqa: E402
from plait.table import handle_of  # noqa: E402
from plait.testing import StoreCall  # noqa: E402
from plait.timeline.paths import LEASES, TIMELINE  # noqa: E402
from plait.txn.recovery import roll_back_failed  # noqa: E402
from tests.support import catalog_steps as catalogs  # noqa: E402
from tests.support import publish_steps as publications  # noqa: E402
from tests.support import stream_steps as streams  # noqa: E402
from tests.support.operations import (  # noqa: E402
    CASES,
    INDEXES,
    REPUSHES,
    Case,
    attempts,
    calls_of,
    create_attempts,
    create_calls,
    ids,
    listed,
    more,
)

PAGE = ROOT / "docs" / "operations" / "crashes.md"
SHORT = 6
"""Of how many operations the short form kills one."""
INTRO = """<!-- made by scripts/certificate.py (make certificate); do not edit -->

# What a crash leaves

Each operation was killed before each of its storage calls, after each that opens a file to write
it, and after the last, with real Parquet files. After every one of these crashes, the table opens,
`verify` finds no problem, a reader sees all of the change or nothing of it, and the next write
works. The last column says who removes the files that are left. Until then they only cost space. A
crash after another call is the same as one before the next call.

- **recovery**: rolls back dead writers. It runs with the next checkpoint, with the first commit of
  a `recovery.interval` and with every clean, once the writer was silent for `heartbeat.timeout` or
  its process is known to have ended. `tablectl rollback --failed` runs it at once.
- **clean**: the next `clean`.
- **next write**: the next run of the same operation.
- **next coordinator**: the sink's processes when they start again.
- **nobody**: the file stays. A read pin is ignored once it has expired.
"""
REPUSH = """## Repushes

A repush is several decisions, and the same call goes on where a killed one was: that is its next
write. A row was changed while it was open. A step that only reads is left out. After each of these
deaths, the same call did the rest, the rows were those of before, and `verify` found no problem.
"""
INDEX = """## The record index

A step that only reads is left out. After each of these deaths the same call did the rest, and a
look-up by key gave the rows of a scan. A run that no manifest names stays while there is a read pin
of its version or an older one, because a client under that pin may be about to publish the run. So
**next write (pin gone)** is the first call that publishes a manifest after a clean has deleted the
expired pin of the dead client.
"""
STREAMS = """## Streams of several writers

One epoch of two writers, as the Kafka sink commits it: the coordinator or one writer was killed at
each of its steps. A step is a storage call, or something that is sent: a message of the group
commit, a dead letter, the group's offsets. A step that only reads is left out: a death before it is
the same as one before the next. After each of these deaths, other processes started and went on
from the table's offsets. Then every record was in the table once, and `stream audit` and `verify`
found no problem. A dead letter of an epoch that was not decided is sent again. Offsets that were
not stored in the group are stored after the next commit.
"""
PUBLICATIONS = """## Published metadata

What an engine sees is the newest version that is published; each version that it can read had the
rows of the table at that version, after each of these deaths. A step that only reads is left out.
A file is left behind if no published version needs it: **next publication** published the rest,
and needs the file then; **clean** deleted it, once the versions of before were let go of.
"""
CATALOG = """## The catalog

A step that only reads is left out; a path begins with the table that it is in. After each of these
deaths each table had one entry, and the same call did the rest (INV-18). What a creation left is
also taken away by a purge, after a day.
"""
PIN_GONE = "next write (pin gone)"
OPENS = "open_output"
READS = ("find", "list", "open_input")
KINDS = (
    (r"^_delta_log/.*\.checkpoint\.", "log checkpoint"),
    (r"^_delta_log/", "log commit"),
    (r"^_dv/", "vector copy"),
    (r"^metadata/snap-", "manifest list"),
    (r"^metadata/[md]-", "manifest"),
    (r"^metadata/x-", "delete file"),
    (r"^\.meta/index/.*\.run$", "index run"),
    (r"^\.meta/index/", "index manifest"),
    (r"^repush-[0-9a-f]{16}/\.meta/", "repush metadata file"),
    (r"^\.meta/pending/", "record"),
    (r"^\.meta/leases/", "read pin"),
    (r"^\.meta/manifests/", "manifest"),
    (r"^\.meta/checkpoints/", "checkpoint file"),
    (r"^\.meta/archive/", "archive file"),
    (r"^\.meta/hints/", "hint"),
    (r"^\.meta/table\.json", "identity"),
    (r"\.keys\.", "key sidecar"),
    (r"\.dv\.", "deletion vector file"),
    (r"\.map\.", "row map file"),
    (r"\.run\.", "run"),
    (r"", "data file"),
)


@dataclass(frozen=True, slots=True)
class Place:
    """What is there after a death."""

    sees: str
    left: str
    removed: str


def main() -> int:
    """Write the page, or say that it is stale."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if it is stale")
    parser.add_argument("--short", action="store_true", help=f"one of {SHORT} operations")
    asked = parser.parse_args()
    if asked.short:
        known = PAGE.read_text(encoding="utf-8")
        stale = [made for make in [*sections().values()][::SHORT] if (made := make()) not in known]
        for each in stale:
            print(f"{each}\nrun: make certificate")
        return 1 if stale else 0
    text = page()
    if PAGE.exists() and PAGE.read_text(encoding="utf-8") == text:
        return 0
    print(f"{'stale' if asked.check else 'written'}: {PAGE.relative_to(ROOT)}")
    if asked.check:
        print("run: make certificate")
        return 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


def page() -> str:
    """Kill everything everywhere; give the page."""
    before = {next(iter(REPUSHES)): REPUSH, next(iter(INDEXES)): INDEX}
    before[next(iter(publications.CASES))] = PUBLICATIONS
    before[next(iter(catalogs.CASES))] = CATALOG
    before[next(iter(streams.STREAM_CASES))] = STREAMS
    lines = [INTRO]
    for name, make in sections().items():
        lines += [before[name]] if name in before else []
        lines.append(make())
    return "\n".join(lines)


def sections() -> dict[str, Callable[[], str]]:
    """Return what kills each operation and gives its section."""
    made: dict[str, Callable[[], str]] = {}
    for name, case in CASES.items():
        made[name] = partial(operation_section, name, case)
    for name, case in (REPUSHES | INDEXES).items():
        made[name] = partial(repush_section, name, case)
    for name, publication in publications.CASES.items():
        made[name] = partial(publish_section, name, publication)
    for name, act in catalogs.CASES.items():
        made[name] = partial(catalog_section, name, act)
    made["create"] = lambda: section("create", None, *create_calls(), create_attempts)
    for name, each in streams.STREAM_CASES.items():
        made[name] = partial(stream_section, name, each)
    return made


def told_after(calls: Sequence[StoreCall]) -> list[int]:
    """Return the calls after which a death is not one before the next call, and the last one.

    A file that was opened is there when it is closed; whatever else a call does, it has done.
    """
    opened = [at for at, call in enumerate(calls, 1) if call.operation == OPENS]
    return sorted({*opened, len(calls)})


def operation_section(name: str, case: Case) -> str:
    """Kill an operation of one decision at each call."""
    return section(name, case, *calls_of(case), partial(uris, case))


def repush_section(name: str, case: Case) -> str:
    """Kill an operation of several decisions at each call that changes something."""
    end, calls = calls_of(case)
    changing = [at for at, call in enumerate(calls, 1) if call.operation not in READS]
    numbers = [*changing, len(calls) + 1]
    lines = heading(name)
    for nth, (uri, _) in zip(numbers, attempts(case, "crash_before", numbers), strict=True):
        last = nth > len(calls)
        number = 1 + len(lines) - len(heading(name))
        where = "after the last" if last else f"before {number}. {brief(calls[nth - 1])}"
        lines.append(line(where, place(uri, case, end)))
    return "\n".join([*lines, ""])


def stream_section(name: str, case: streams.StreamCase) -> str:
    """Kill one process of a stream at each of its steps; let others go on."""
    end, calls = streams.stream_steps(case)
    changing = [at for at, call in enumerate(calls, 1) if call.operation not in READS]
    lines = [*heading(name)]
    for number, nth in enumerate((*changing, len(calls) + 1), 1):
        uri = streams.dead_at(case, nth).uri
        last = nth > len(calls)
        where = "after the last" if last else f"before {number}. {brief(calls[nth - 1])}"
        lines.append(line(where, place(uri, case.table, end, stream=case)))
    return "\n".join([*lines, ""])


def publish_section(name: str, case: publications.PublishCase) -> str:
    """Kill a publication at each call that changes something; let others go on."""
    calls = publications.publish_calls(case)
    changing = [at for at, call in enumerate(calls, 1) if call.operation not in READS]
    lines = [*heading(name)]
    for number, nth in enumerate((*changing, len(calls) + 1), 1):
        publications.dead_at(case, nth)
        last = nth > len(calls)
        where = "after the last" if last else f"before {number}. {brief(calls[nth - 1])}"
        lines.append(line(where, publication_place(case)))
    return "\n".join([*lines, ""])


def publication_place(case: publications.PublishCase) -> Place:
    """Look at what is published, and see who takes care of what is left."""
    store = open_store(publications.PLACE)
    publications.require_right(store)
    sees, left = publications.seen(store, case.target), publications.unneeded(store)
    steps: tuple[tuple[str, Callable[[], object]], ...] = (
        ("next publication", lambda: publications.gone_on(case.target)),
        ("clean", publications.cleaned),
    )
    there, gone = set(left), list[str]()
    for name, step in steps:
        step()
        rest = there & set(publications.unneeded(store))
        gone += [name] if rest != there else []
        there = rest
    gone += ["nobody"] if there else []
    return Place(sees, kinds(left) or "nothing", ", ".join(gone))


def catalog_section(name: str, case: catalogs.CatalogCase) -> str:
    """Kill an operation of a catalog at each call that changes something; then repeat it."""
    lines = [*heading(name)]
    for number, (call, left) in enumerate(catalogs.deaths(case, READS), 1):
        where = "after the last" if call is None else f"before {number}. {brief(call)}"
        lines.append(line(where, Place(left.sees, left.entries, left.removed)))
    return "\n".join([*lines, ""])


def gone_on(uri: str, case: streams.StreamCase) -> None:
    """Let the sink start again; see that each record is in the table once."""
    streams.go_on(uri, case)
    table = Table.open(uri)
    problems = table.stream(streams.APPLICATION).audit().problems
    if ids(table) != case.table.after or problems or not table.check.verify(data=True).clean:
        message = f"not each record once at {uri}: {problems}"
        raise AssertionError(message)


def uris(case: Case, kind: str, *numbers: Iterable[int]) -> Iterator[str]:
    """Kill an operation at calls, by default at each; give where its tables are."""
    return (uri for uri, _ in attempts(case, kind, *numbers))


def section(
    name: str,
    case: Case | None,
    end: str,
    calls: Sequence[StoreCall],
    killed: Callable[..., Iterator[str]],
) -> str:
    """Kill an operation at its calls, and write the places that are left as a table."""
    before = [place(uri, case, end) for uri in killed("crash_before")]
    numbers = told_after(calls)
    dead = zip(numbers, killed("crash_after", numbers), strict=True)
    after = {number: place(uri, case, end) for number, uri in dead}
    lines = heading(name)
    for number, (call, here) in enumerate(zip(calls, before, strict=False), 1):
        lines.append(line(f"before {number}. {brief(call)}", here))
        then = after.get(number)
        if then is not None and then != before[number]:
            lines.append(line(f"after {number}., before the file is closed", then))
    return "\n".join([*lines, line("after the last", after[len(calls)]), ""])


def heading(name: str) -> list[str]:
    """Begin the table of an operation."""
    titles = "| killed | a reader sees | left behind | removed by |"
    return [f"## {name}", "", titles, "|---|---|---|---|"]


def line(where: str, each: Place) -> str:
    """Write one place."""
    return f"| {where} | {each.sees} | {each.left} | {each.removed} |"


def place(uri: str, case: Case | None, end: str, stream: streams.StreamCase | None = None) -> Place:
    """Look at a table whose writer died, and see who removes what is left of it."""
    if case is None and not has_table(uri):
        return Place("no table", kinds(listed(uri)), "next write" if listed(uri) else "")
    sees, whole = seen(uri, case, end)
    left = [path for path in listed(uri) if plain(path) not in whole]
    finishes = case is not None and case.done is not None
    if not left and stream is None and not finishes:
        return Place(sees, "nothing", "")
    gone = ", ".join(dict.fromkeys(removers(uri, left, case, stream)))
    return Place(sees, kinds(left) or "nothing", gone if left else "")


def has_table(uri: str) -> bool:
    """Tell whether a table can be opened."""
    try:
        Table.open(uri)
    except TableNotFoundError:
        return False
    return True


def seen(uri: str, case: Case | None, end: str) -> tuple[str, set[str]]:
    """Say what a reader sees, and which files belong to that."""
    table = Table.open(uri)
    if not table.check.verify(data=True).clean:
        message = f"damage at {uri}"
        raise AssertionError(message)
    ends = {plain(path) for path in listed(end)}
    if case is None:
        return "the table", ends
    start = {plain(path) for path in case.prepared()}
    slots = {path for path in map(plain, listed(uri)) if path.startswith(f"{TIMELINE}/")}
    if case.done is not None:
        changed, start = case.done(table), start | {plain(path) for path in named_by(table)}
    elif case.after == case.before:
        changed = len(slots) > sum(path.startswith(f"{TIMELINE}/") for path in start)
    else:
        changed = ids(table) == case.after  # a decision may have ended another writer alone
    if not changed:
        return "the table as it was", start | slots
    of_the_dead = {plain(path) for path in case.files()} - start
    return "the change", ends - of_the_dead


def plain(path: str) -> str:
    """Leave the time out of a name: tables are made at different times."""
    return re.sub(r"\d{17}-", "", path)


def named_by(table: Table) -> list[str]:
    """Return the files of the newest version."""
    return [str(path) for path in table.inspect.files()["path"].to_pylist()]


def finished(uri: str, case: Case) -> None:
    """Make the same call again; see that it does the rest."""
    table = Table.open(uri)
    case.run(table)
    over = case.done is None or case.done(Table.open(uri))
    if not over or ids(table) != case.after or not table.check.verify(data=True).clean:
        message = f"the same call did not finish what was begun at {uri}"
        raise AssertionError(message)


def published_again(uri: str, case: Case) -> None:
    """Publish the next manifest once the pins of the dead are gone; look every key up."""
    table = Table.open(uri)
    same_rows(table, case)
    store = handle_of(table).store
    store.delete([info.path for info in store.list(LEASES)])
    if table.index.status().name is not None:
        table.index.build(anew=True)
    same_rows(table, case)


def same_rows(table: Table, case: Case) -> None:
    """Look every key up, and others."""
    wanted = range(max(case.after) + 9)
    if frozenset(table.get(list(wanted))["id"].to_pylist()) != case.after:
        message = f"a look-up by the index loses rows of {table}"
        raise AssertionError(message)


def removers(
    uri: str, left: Sequence[str], case: Case | None, stream: streams.StreamCase | None = None
) -> Iterator[str]:
    """Let those who come later do their work in turn; name each that removed something."""
    table = Table.open(uri)
    there = set(left)
    begin: tuple[tuple[str, Callable[[], object]], ...] = ()
    if stream is not None:
        begin = (("next coordinator", lambda: gone_on(uri, stream)),)
    elif case is not None and case.done is not None:
        begin = (("next write", lambda: finished(uri, case)),)
        if case in INDEXES.values():
            begin += ((PIN_GONE, lambda: published_again(uri, case)),)
    steps: tuple[tuple[str, Callable[[], object]], ...] = (
        *begin,
        ("recovery", lambda: roll_back_failed(handle_of(table), reason="dead", everything=True)),
        ("clean", table.maintenance.clean),
        ("next write", lambda: more(table)),
        *(
            (("clean", table.maintenance.clean),)
            if case is not None and case.done is not None
            else ()
        ),
    )
    waited = set[str]()
    for name, step in steps:
        step()
        gone = there - set(listed(uri))
        if name == PIN_GONE:
            waited = {path for path in gone if path.startswith(f"{LEASES}/")}
        there -= gone
        if gone - waited:
            yield name
    named = set(named_by(table)) if there else set()
    if there - named or waited:
        yield "nobody"


def kinds(paths: Sequence[str]) -> str:
    """Count files by what they are."""
    found = Counter(next(name for pattern, name in KINDS if re.search(pattern, p)) for p in paths)
    return ", ".join(
        f"{count} {name}{'s' if count > 1 else ''}" for name, count in sorted(found.items())
    )


def brief(call: StoreCall) -> str:
    """Write a call without the marks that differ from table to table."""
    path = re.sub(r"leases/\d{20}-[0-9a-f]{16}", "leases/VERSION-NONCE", call.path)
    path = re.sub(r"\d{20}-[0-9a-f]{16}-\d{6}\.run", "VERSION-NONCE-N.run", path)
    path = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UUID", path)
    path = re.sub(r"\d{17}-[0-9a-f]{16}", "INSTANT", path)
    path = re.sub(r"^\.meta/timeline/\d+/0*(\d+)\.json", r"slot \1", path)
    path = re.sub(r"\b0{8,}(\d+)", r"\1", path)
    path = re.sub(r"[0-9a-f]{16}", "NONCE", path)
    return f"{call.operation} `{path}`" if path else call.operation


if __name__ == "__main__":
    sys.exit(main())
