"""What the metadata of a table names outside of it is touched only with the caller's consent."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from plait import Table
from plait.model.document import unseal
from plait.storage.local import LocalStore
from plait.timeline import paths
from tests.support import build
from tests.support.audit import HOSTILE
from tests.support.effort import MORE, share
from tests.support.forge import seal

SCHEMA = "id bigint, day string, v string"
_POSTGRESQL = bytes.fromhex("0000000804d2162f")
"""The first bytes of a client of PostgreSQL."""
Edit = Callable[[dict[str, object]], None]
Path_ = tuple[str | int, ...]
rows = partial(build.rows, day="x", v=lambda each: f"v{each}")


@dataclass
class Listener:
    """A server that notes who connects."""

    port: int = 0
    calls: list[bytes] = field(default_factory=list)

    @property
    def at(self) -> str:
        return f"127.0.0.1:{self.port}"

    def serve(self, server: socket.socket) -> None:
        while True:
            try:
                client, _ = server.accept()
            except OSError:
                return
            with client:
                client.settimeout(1)
                try:
                    self.calls.append(client.recv(100))
                except OSError:
                    self.calls.append(b"")


@pytest.fixture
def listener() -> Iterator[Listener]:
    made, server = Listener(), socket.socket()
    server.bind(("127.0.0.1", 0))
    server.listen(50)
    made.port = server.getsockname()[1]
    thread = threading.Thread(target=made.serve, args=(server,), daemon=True)
    thread.start()
    yield made
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join()


@dataclass(frozen=True)
class Elsewhere:
    """Places outside of the table: a table of Plait, a file of Parquet, a database that is not."""

    root: Path

    def make(self) -> None:
        Table.create(str(self.root / "victim"), SCHEMA, record_key="id").upsert(rows(9))
        pq.write_table(rows(666), self.root / "secret.parquet")

    def listed(self) -> list[tuple[str, int, int]]:
        """Return every file, its size and its time."""
        found = (each for each in self.root.rglob("*") if each.is_file())
        return sorted((str(e), e.stat().st_size, e.stat().st_mtime_ns) for e in found)


@pytest.fixture
def elsewhere(tmp_path: Path) -> Elsewhere:
    made = Elsewhere(tmp_path / "elsewhere")
    made.root.mkdir()
    made.make()
    return made


def documents(root: Path) -> list[dict[str, object]]:
    store, found = LocalStore(str(root)), []
    while (body := store.find(paths.slot(len(found)))) is not None:
        found.append(unseal(body, path="")[1])
    return found


def write(root: Path, decisions: list[dict[str, object]]) -> None:
    """Put decisions in place of those that there are, each chained to the one before."""
    store, previous = LocalStore(str(root)), None
    for version, decision in enumerate(decisions):
        if previous is not None:
            decision["previous"] = previous
        body = seal(decision)
        previous, _ = unseal(body, path="")
        store.put(paths.slot(version), body)
    for name in ("checkpoints", "hints"):
        shutil.rmtree(root / ".meta" / name, ignore_errors=True)


def texts(value: object, at: Path_ = ()) -> Iterator[Path_]:
    """Return where the texts of a document are, the names of fields too where they are free."""
    if isinstance(value, str):
        yield at
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from texts(item, (*at, key))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from texts(item, (*at, number))


def put(document: object, at: Path_, text: str) -> None:
    for step in at[:-1]:
        document = document[step]  # type: ignore[index]
    document[at[-1]] = text  # type: ignore[index]


def with_sinks(root: Path) -> None:
    """Make a table with as many texts in its definition as can stand beside sinks."""
    table = Table.create(
        str(root),
        SCHEMA,
        record_key="id",
        partition_by="day",
        properties={"features.upgrade": "always"},
        generated=None,
        checks={"positive": "id > 0"},
        replicas=[f"eu={root}-eu"],
    )
    table.replicas.remove("eu")
    table.append(rows(1, 2))
    table.append(rows(3))
    Table.create(f"{root}-us", SCHEMA, record_key="id", partition_by="day")
    table.replicas.add(f"us={root}-us")
    table.upsert(rows(4))


def with_source(root: Path) -> None:
    """Make a table with an open repush from a source elsewhere, and what else a definition has."""
    from plait.model.repush import SourceAddress
    from plait.repush.begin import RepushRequest, begin
    from plait.repush.source import WantedSource

    table = Table.create(
        str(root), f"{SCHEMA}, at timestamp", record_key="id", table_type="mor", ttl="at 30d"
    )
    more = rows(1, 2).append_column("at", pa.array([None, None], pa.timestamp("us", "UTC")))
    table.append(more)
    table.append(more.slice(0, 0))
    table.versions.savepoint("kept")
    table.index.create()
    table.layout.repush(buckets=3)
    source = str(root) + "-source.parquet"
    pq.write_table(more, source)
    asked = WantedSource(SourceAddress.of(f"parquet:{source}"), given=True)
    begin(table._handle, RepushRequest(source=asked))


def addresses(listener: Listener, elsewhere: Elsewhere) -> dict[str, str]:
    out, at = elsewhere.root, listener.at
    return {
        "new database": f"sqlite:///{out}/made.db#t",
        "database by another URL": f"sqlite:///file:{out}/made.db?uri=true&mode=rwc#t",
        "server of a database": f"postgresql+psycopg://{at}/db#t",
        "server in a query": f"postgresql+psycopg:///db?host=127.0.0.1&port={listener.port}#t",
        "topic": f"kafka://{at}/topic",
        "lock": f"zookeeper://{at}/hostile?session=1s",
        "lent slots": f"zookeeper://{at}/hostile?session=1s&slots=lent",
        "web": f"http://{at}/t",
        "another table": f"{out}/victim",
        "another table by a URL": f"file://{out}/victim",
        "a path upwards": f"../elsewhere/{HOSTILE}",
        "a file": f"{out}/secret.parquet",
        "a class": f"{HOSTILE}.module.Class",
        "a class by a colon": f"{HOSTILE}.module:Class",
    }


def try_doors(
    roots: list[Path],
    outside: Path,
    *,
    allow: Sequence[str] = (),
    doors: Sequence[str] = (),
    turns: int = 1,
) -> list[dict[str, object]]:
    """Try all doors of tables, or those that are named; with ``turns`` one in so many of each."""
    order: dict[str, object] = {"outside": str(outside), "roots": list(map(str, roots))}
    order |= {"allow": list(allow), "doors": list(doors), "turns": turns}
    environment = {name: text for name, text in os.environ.items() if name != "PLAIT_ALLOW"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.processes.hostile.doors"],
        input=json.dumps(order), capture_output=True, text=True, check=False, env=environment,
        timeout=3000,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    answers: list[dict[str, object]] = json.loads(done.stdout)
    return answers


def require_untouched(
    answers: list[dict[str, object]], names: dict[str, str], listener: Listener
) -> None:
    touched = [
        f"{names[str(each['root'])]}, {each['door']}: {each['found']}"
        for each in answers
        if each["found"]
    ]
    assert touched == []
    assert listener.calls == []


def known(tmp_path: Path) -> Iterator[tuple[str, list[dict[str, object]], Path]]:
    for number, make in enumerate((with_sinks, with_source)):
        root = tmp_path / f"table-{number}"
        make(root)
        yield make.__name__, documents(root), root


def forged(tmp_path: Path, listener: Listener, elsewhere: Elsewhere) -> Iterator[tuple[str, Path]]:
    """Make a table for each text and address; few addresses for a text, unless it is a long run."""
    named = addresses(listener, elsewhere)
    for kind, decisions, original in known(tmp_path):
        every = {
            (version, at) if MORE else tuple("*" if isinstance(e, int) else e for e in at): (
                version,
                at,
            )
            for version, decision in enumerate(decisions)
            for at in texts(decision)
            if at[0] == "table"
        }  # the last of its sort, unless all of them
        found = list(every.values())
        turns = itertools.cycle(named.items())
        for number, (version, at) in enumerate(found):
            for name, address in named.items() if MORE else [next(turns)]:
                root = tmp_path / f"{kind}-{number}-{name.replace(' ', '-')}"
                shutil.copytree(original, root)
                changed = json.loads(json.dumps(decisions))
                put(changed[version], at, address)
                write(root, changed)
                yield f"{kind}: decision {version}, {'.'.join(map(str, at))} = {name}", root


def test_no_text_of_a_definition_leads_outside_without_consent(
    tmp_path: Path, listener: Listener, elsewhere: Elsewhere
) -> None:
    """Each text is replaced by each sort of address, and doors of every sort are tried."""
    names = {str(root): name for name, root in forged(tmp_path, listener, elsewhere)}
    before = elsewhere.listed()
    answers = try_doors(list(map(Path, names)), elsewhere.root, turns=3 // share(3))
    require_untouched(answers, names, listener)
    assert elsewhere.listed() == before
    sys.stderr.write(f"{len(names)} definitions, {len(answers)} doors tried\n")


def named_by(decisions: list[dict[str, object]], edit: Edit) -> list[dict[str, object]]:
    changed: list[dict[str, object]] = json.loads(json.dumps(decisions))
    for decision in changed:
        if isinstance(decision.get("table"), dict):
            edit(decision["table"])  # type: ignore[arg-type]
    return changed


def sink(address: str) -> Edit:
    return lambda table: table.update(replicas={"eu": address}, former_replicas={})


def lock(address: str) -> Edit:
    def edit(table: dict[str, object]) -> None:
        table["contract"]["lock"] = address  # type: ignore[index]
        table.pop("replicas", None)

    return edit


def source(kind: str, place: str) -> Edit:
    def edit(table: dict[str, object]) -> None:
        if isinstance(opened := table.get("repush"), dict) and "source" in opened:
            opened["source"] = {**opened["source"], "kind": kind, "place": place}

    return edit


def spelled(
    tmp_path: Path, listener: Listener, elsewhere: Elsewhere
) -> Iterator[tuple[str, str, Path]]:
    """Make tables that name an address where the format has one."""
    named = addresses(listener, elsewhere)
    edits: dict[str, list[tuple[str, str, Edit]]] = {"with_sinks": [], "with_source": []}
    for name, address in named.items():
        edits["with_sinks"].append((f"sink, {name}", address, sink(address)))
        if address.startswith("zookeeper"):
            edits["with_sinks"].append((f"lock, {name}", address, lock(address)))
    kinds = ("table", "delta", "iceberg", "parquet")
    for number, (name, address) in enumerate(named.items()):
        turn = kinds if MORE or name == "another table" else (kinds[number % 4],)
        for kind in turn:
            edits["with_source"].append((f"{kind}, {name}", address, source(kind, address)))
    for kind, decisions, original in known(tmp_path):
        for number, (name, address, edit) in enumerate(edits[kind]):
            root = tmp_path / f"{kind}-{number}"
            shutil.copytree(original, root)
            write(root, named_by(decisions, edit))
            yield name, address, root


def test_an_address_where_the_format_has_one_is_not_used_without_consent(
    tmp_path: Path, listener: Listener, elsewhere: Elsewhere
) -> None:
    """Sinks, locks and sources of every sort; what reads needs none, except for lent slots."""
    names = {str(root): name for name, _, root in spelled(tmp_path, listener, elsewhere)}
    before = elsewhere.listed()
    answers = try_doors(list(map(Path, names)), elsewhere.root)
    require_untouched(answers, names, listener)
    assert elsewhere.listed() == before
    outcomes: dict[tuple[str, object], set[object]] = {}
    for each in answers:
        sort, _, _ = names[str(each["root"])].partition(",")
        outcomes.setdefault((sort, each["door"]), set()).add(each["outcome"])
    assert outcomes["sink", "scan"] == outcomes["sink", "verify"] == {"done"}
    assert outcomes["sink", "upsert"] == outcomes["sink", "transaction"] == {"consent"}
    assert outcomes["lock", "upsert"] == {"consent"}
    assert outcomes["lock", "open"] == {"done", "consent"}, "lent slots are asked by who reads"


def test_an_allowed_address_is_used_and_the_watch_would_see_it(
    tmp_path: Path, listener: Listener, elsewhere: Elsewhere
) -> None:
    """The tests above can fail: with consent, the same doors do touch what is named."""
    wanted = (
        "sink, new database",
        "sink, server of a database",
        "lock, lent slots",
        "table, another table",
    )
    made = {n: (a, r) for n, a, r in spelled(tmp_path, listener, elsewhere) if n in wanted}
    allow = [address for address, _ in made.values()]
    doors, roots = ["upsert", "command repush"], [root for _, root in made.values()]
    answers = try_doors(roots, elsewhere.root, allow=allow, doors=doors)
    touched = {str(each["root"]) for each in answers if each["found"]}
    native = str(made["sink, server of a database"][1])  # libpq is seen by the server alone
    assert touched | {native} == {str(root) for _, root in made.values()}
    assert any(call.startswith(_POSTGRESQL) for call in listener.calls)
    assert (elsewhere.root / "made.db").exists()
