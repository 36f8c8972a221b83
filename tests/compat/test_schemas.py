"""The JSON Schemas of the specification say what the code writes: no key more, none less."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import jsonschema
import pyarrow as pa
import pytest
from referencing import Registry, Resource

from plait import Table
from plait.definition import features
from plait.definition.table_def import TableDef
from plait.expr import from_json, parse_where, to_json
from plait.model.changes import KEYS_ALL, SECTIONS, Digest
from plait.model.decision import (
    ArchiveFile,
    Cleaned,
    Decision,
    ReadSet,
    Replayed,
    Reserved,
    Restored,
    RolledBack,
    Savepoint,
    SavepointChange,
    Scope,
    SetBack,
    Span,
    TableStatistics,
    Token,
)
from plait.model.instant import Action, Instant, Operation
from plait.model.plan import FormerLayout
from plait.model.repush import OpenRepush, RepushSource, SourceAddress, repush_directory
from plait.model.schema import Check, ColumnNote
from plait.model.sink_ledger import Attempt, SinkLedger, SinkPosition, TaskLedger
from plait.replicate import Replicas, repair
from plait.state.part_file import PART_TABLES
from plait.storage import open_store
from plait.timeline import codec, paths
from plait.timeline.replica_records import write_attempt
from tests.support.sinks import fresh

ROOT = Path(__file__).resolve().parents[2]
SPEC = ROOT / "docs/spec"
V1 = Path(__file__).parent / "v1"
SCHEMAS = {
    path.name.removesuffix(".schema.json"): json.loads(path.read_text(encoding="utf-8"))
    for path in sorted(SPEC.glob("*.schema.json"))
}
REGISTRY = Registry().with_resources(
    [(f"{name}.schema.json", Resource.from_contents(each)) for name, each in SCHEMAS.items()]
)
DEFS = SCHEMAS["decision"]["$defs"]
STATE = SCHEMAS["checkpoint"]["properties"]["state"]["contentSchema"]


def check(name: str, document: object) -> None:
    schema = {"$ref": f"{name}.schema.json"}
    jsonschema.Draft202012Validator(schema, registry=REGISTRY).validate(document)
    inner = {"checkpoint": "state", "index": "manifest"}.get(name)
    if inner is not None:
        assert isinstance(document, dict)
        state = {"$ref": f"{name}.schema.json#/properties/{inner}/contentSchema"}
        validator = jsonschema.Draft202012Validator(state, registry=REGISTRY)
        validator.validate(json.loads(document[inner]))


def kind_of(path: str) -> str | None:
    """Tell which schema a file of a table has; None for one that is no JSON."""
    forms = {
        ".meta/table.json": "table",
        ".meta/timeline/": "decision",
        ".meta/leases/": "lease",
        ".meta/index/": "index",
        ".meta/replicas/attempts/": "attempt",
        ".meta/replicas/positions/": "position",
    }
    if path.startswith(".meta/checkpoints/"):
        return "checkpoint" if path.endswith("/state.json") else None
    if path.endswith(".run"):
        return None
    if path.startswith(".meta/pending/"):
        return "pending" if path.endswith(".requested") else "inflight"
    return next((name for start, name in forms.items() if path.startswith(start)), None)


def records(folder: Path) -> Iterator[tuple[str, object]]:
    for path in sorted(folder.rglob("*")):
        name = kind_of(path.relative_to(folder).as_posix())
        if path.is_file() and name is not None and path.stat().st_size:  # an empty slot is archived
            yield name, json.loads(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", SCHEMAS)
def test_schema_is_sound_and_named_in_the_specification(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMAS[name])
    assert f"({name}.schema.json)" in (SPEC / "format.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("table", sorted(path.stem for path in V1.glob("*.json")))
def test_every_record_of_a_golden_table_fits_its_schema(table: str) -> None:
    for name, document in records(V1 / table):
        check(name, document)


def test_golden_tables_have_records_of_every_kind() -> None:
    kinds = {name for table in V1.iterdir() if table.is_dir() for name, _ in records(table)}
    assert kinds == set(SCHEMAS) - {"attempt", "lock", "messages", "position"}


# --- every key that the code can write ---------------------------------------------------------

NOBODY = Instant.at(0, "0" * 16)
PREDICATE = {"null": ["id"], "negated": False}
SCOPE = Scope("partitions", (("a", None),), PREDICATE)


def laid_out(table: TableDef) -> TableDef:
    """Return a definition that has an older layout and an open repush."""
    schema, layout = table.spec.schema, table.spec.layout
    layout = replace(layout, buckets=replace(layout.buckets, by=("id",)))
    first = schema.ids[schema.names[0]]
    notes = {first: ColumnNote("a word", "1", "2", was_float=True, generated="n", stored_name="m")}
    schema = replace(schema, notes=notes, checks=(Check("positive", "id > 0"),))
    spec = replace(table.spec, schema=schema, layout=layout)
    table = replace(table, spec=spec, schemas={schema.id: schema})
    directory = repush_directory("0" * 16)
    source = RepushSource(SourceAddress("parquet", "files"), 0, 1, "digest")
    opened = OpenRepush(directory, 0, layout, 1, {"clean.grace": "1h"}, source, "one")
    return replace(
        table,
        former=(FormerLayout(layout, 0),),
        repush=opened,
        index="0" * 16,
        dropped_indexes=("1" * 16,),
        repushed=(directory,),
        replicas={"eu": "s3://eu/t"},
        former_replicas={"us": "s3://us/t"},
        allowed=("replicas-1",),
        contract=replace(table.contract, dropped="20260101000000000"),
    )


def whole(**changes: object) -> dict[str, object]:
    """Write a decision that has everything, and read its JSON."""
    path = "data/00000-20260101000000000-0123456789abcdef-0-0001.base.parquet"
    values = {pa.string(): path, pa.binary(): b"", pa.bool_(): True}
    words = {"partition": "[]", "kind": "base", "keys": KEYS_ALL}
    sections = {
        name: pa.table({f.name: [words.get(f.name, values.get(f.type, 1))] for f in each}, each)
        for name, each in SECTIONS.items()
    }
    table = Table.create(
        "memory://schema-of-decisions", "id bigint, day date", ttl="day 1d", if_not_exists=True
    )
    decision = Decision(
        version=1,
        instant=NOBODY,
        action=Action.COMMIT,
        operation=Operation.UPSERT,
        base=0,
        completed_ms=1,
        attempt="0" * 16,
        previous="0" * 64,
        scope=SCOPE,
        read_set=ReadSet(0, (None, PREDICATE)),
        commit_id="id",
        tokens=(Token("app", 0, "", "1", (Span("s", "", "1"),), Digest(1, 1)),),
        rolled_back=(RolledBack(NOBODY, "why", (("a", None),)),),
        cleaned=Cleaned(0, 0, ((path, 0),), (path,), 0),
        reserved=Reserved(NOBODY, SCOPE, ((("a", None), -1),)),
        savepoint=SavepointChange(Savepoint("monday", 0)),
        restored=Restored(0, ((1, 1),)),
        replayed=Replayed((SetBack("app", Token("app", 0, "", "1"), 1), SetBack("b")), ("id",)),
        archived=(ArchiveFile(paths.archive(0, 0, NOBODY), 0, 0, 1, "0" * 64),),
        replicas=SinkLedger(("eu",), (TaskLedger("0", 1, Digest(1, 1), ("a", None)),)),
        live=TableStatistics(1, 1, 1),
        table=laid_out(table._handle.cache.known().table).to_dict(),
    )
    changes = {"changes": replace(decision.changes, **sections), **changes}
    return json.loads(codec.encode(replace(decision, **changes)))


def test_keys_of_a_decision_are_those_of_its_schema() -> None:
    document = whole()
    check("decision", document)
    decision = document["decision"]
    parts = {
        "decision": decision,
        "scope": decision["scope"],
        "readSet": decision["read_set"],
        "token": decision["tokens"][0],
        "rolledBack": decision["rolled_back"][0],
        "cleaned": decision["cleaned"],
        "reserved": decision["reserved"],
        "savepoint": decision["savepoint"],
        "restored": decision["restored"],
        "replay": decision["replay"],
        "replicas": decision["replicas"],
        "taskLedger": decision["replicas"]["tasks"][0],
        "setBack": decision["replay"]["applications"][0],
        "stats": decision["stats"],
        "table": decision["table"],
        "ttl": decision["table"]["ttl"],
        "formerLayout": decision["table"]["former_layouts"][0],
        "openRepush": decision["table"]["repush"],
        "repushSource": decision["table"]["repush"]["source"],
        "layout": decision["table"]["repush"]["layout"],
        "bucketSpec": decision["table"]["bucket_spec"],
        "contract": decision["table"]["contract"],
        "schema": decision["table"]["schemas"][0],
        "field": decision["table"]["schemas"][0]["fields"][0],
        "changes": decision["changes"],
    }
    for name, value in parts.items():
        assert set(DEFS[name]["properties"]) == set(value), name


@pytest.mark.parametrize("name", SECTIONS)
def test_columns_of_a_section_are_those_of_its_schema(name: str) -> None:
    columns = DEFS["changes"]["properties"][name]["oneOf"][0]
    assert set(columns["properties"]) == set(SECTIONS[name].names)
    assert set(columns["required"]) == {f.name for f in SECTIONS[name] if not f.nullable}


def test_words_of_the_schemas_are_those_of_the_code() -> None:
    decision = DEFS["decision"]["properties"]
    assert set(decision["action"]["enum"]) == set(Action)
    assert set(decision["operation"]["enum"]) == set(Operation)
    assert tuple(DEFS["feature"]["enum"]) == features.KNOWN
    files = STATE["properties"]["parts"]["items"]["properties"]["files"]
    assert set(files["items"]["prefixItems"][0]["enum"]) == set(PART_TABLES)


COLUMNS = pa.schema([("id", pa.int64()), ("s", pa.string())])
PREDICATES = [
    *(f"id {op} 1" for op in ("=", "!=", "<", "<=", ">", ">=")),
    "id IN (1, 2) AND (s LIKE 'a%' OR s IS NULL)",
    "id NOT IN (1, 2) AND s NOT LIKE 'a%' AND s IS NOT NULL",
    "id IS NOT NULL OR NULL",
    "TRUE",
    "NULL",
]


@pytest.mark.parametrize("where", PREDICATES)
def test_every_predicate_fits_the_schema(where: str) -> None:
    predicate = parse_where(where, COLUMNS)
    document = to_json(predicate)
    check("decision", whole(scope=replace(SCOPE, predicate=document)))
    assert from_json(document, COLUMNS) == predicate


def test_records_of_work_under_way_have_the_keys_of_their_schemas() -> None:
    uri = "memory://schema-of-records"
    options = {"checkpoint.interval": "1", "archive.keep": "1", "rows.written": "on"}
    table = Table.create(uri, "id bigint", record_key="id", properties=options)
    table.versions.savepoint("empty")
    for number in range(3):
        table.upsert(pa.table({"id": [number]}))
    table.maintenance.archive()
    table.upsert(pa.table({"id": [1]}))
    table.index.create()
    store, found = open_store(uri), {}
    with table.writer("upsert", replicas=Replicas([fresh("eu")])) as writer:
        writer.write(pa.table({"id": [2]}))
        repair(table, fresh("eu"))
        write_attempt(store, Attempt(writer.instant, ("eu",), 1, "host", 1, "3-17", ("eu",), "p"))
        scan = table.scan()
        for info in store.list(".meta"):
            name, body = kind_of(info.path), store.find(info.path)
            if name is not None and body:
                found[name] = json.loads(body)
                check(name, found[name])
    assert scan is not None
    assert {"attempt", "position", "pending", "lease", "table", "checkpoint"} <= set(found)
    for name, document in found.items():
        assert set(SCHEMAS[name]["properties"]) - {"lost"} == set(document), name
    lost = SinkPosition("eu", 0, lost=True).to_dict()
    check("position", {**lost, "seal": "0" * 16})
    assert set(STATE["properties"]) == set(json.loads(found["checkpoint"]["state"]))


DAMAGED: list[Callable[[dict[str, object]], object]] = [
    lambda d: d.pop("attempt"),
    lambda d: d.update(surprise=1),
    lambda d: d.update(version=-1),
    lambda d: d.update(instant="now"),
    lambda d: d["changes"].update(surprise={}),
    lambda d: d["changes"]["added"].pop("path"),
    lambda d: d["scope"].update(predicate={"not": PREDICATE}),
]


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_decision_that_does_not_follow_the_specification_does_not_fit(damage) -> None:
    document = whole()
    damage(document["decision"])
    with pytest.raises(jsonschema.ValidationError):
        check("decision", document)
