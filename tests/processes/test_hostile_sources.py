"""Sources of other formats that a stranger made: they run nothing, and read nothing elsewhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.memory import InMemoryCatalog

from plait import Table
from tests.processes.test_hostile_definitions import Listener, listener
from tests.support.audit import HOSTILE

__all__ = ["listener"]
ROWS = pa.table({"id": pa.array([1], pa.int64())})
SECRET = pa.table({"id": pa.array([666], pa.int64())})


@dataclass(frozen=True)
class Places:
    """Where sources are made, and the file elsewhere that they name."""

    root: Path
    at: str
    """A server that nobody may connect with."""

    @property
    def outside(self) -> Path:
        return self.root / "elsewhere"

    @property
    def secret(self) -> Path:
        return self.outside / "secret.parquet"


@pytest.fixture
def places(tmp_path: Path, listener: Listener) -> Places:
    made = Places(tmp_path, listener.at)
    made.outside.mkdir()
    pq.write_table(SECRET, made.secret)
    return made


def iceberg(place: Path, **properties: str) -> Path:
    """Write a table of Iceberg; return its metadata file."""
    catalog = InMemoryCatalog("memory", warehouse=f"file://{place}")
    catalog.create_namespace("n")
    table = catalog.create_table("n.t", ROWS.schema, properties=properties)
    table.append(ROWS)
    return Path(table.metadata_location.removeprefix("file://"))


def edited(file: Path, edit: Callable[[dict[str, object]], object]) -> str:
    document = json.loads(file.read_text())
    edit(document)
    file.write_text(json.dumps(document))
    return f"iceberg:{file}"


def with_properties(properties: dict[str, str]) -> Callable[[dict[str, object]], object]:
    return lambda document: document.update(properties=properties)


def snapshots_at(place: str) -> Callable[[dict[str, object]], object]:
    def edit(document: dict[str, object]) -> None:
        for each in document["snapshots"]:  # type: ignore[attr-defined]
            each["manifest-list"] = place

    return edit


def icebergs(places: Places) -> Iterator[tuple[str, str]]:
    root, at = places.root, places.at
    classes = {
        "py-io-impl": f"{HOSTILE}.FileIO",
        "io-impl": f"{HOSTILE}.FileIO",
        "py-catalog-impl": f"{HOSTILE}.Catalog",
        "write.py-location-provider.impl": f"{HOSTILE}.Provider",
        "write.location-provider.impl": f"{HOSTILE}.Provider",
        "s3.signer": "S3V4RestSigner",
        "s3.signer.uri": f"http://{at}",
        "s3.endpoint": f"http://{at}",
        "s3.proxy-uri": f"http://{at}",
        "uri": f"http://{at}",
        "gcs.service.host": f"http://{at}",
        "hdfs.host": at.partition(":")[0],
        "encryption.kms-impl": f"{HOSTILE}.Kms",
    }
    for name, value in classes.items():
        file = iceberg(root / f"ice-{name}")
        yield f"property {name}", edited(file, with_properties({name: value}))
    file = iceberg(root / "ice-all")
    yield "all properties", edited(file, with_properties(classes))
    moved = {
        "s3": "s3://bucket/list.avro",
        "http": f"http://{at}/list.avro",
        "hdfs": f"hdfs://{at}/list.avro",
        "path": str(places.secret),
        "url": f"file://{places.secret}",
        "steps": f"{root}/ice-steps/n/t/../../../elsewhere/secret.parquet",
        "server": f"file://{at}/list.avro",
        "neighbour": f"{root}/ice-neighbour/n/t-other/list.avro",
    }
    for name, place in moved.items():
        file = iceberg(root / f"ice-{name}")

        def edit(document: dict[str, object], place: str = place) -> None:
            snapshots_at(place)(document)
            document["properties"] = {"s3.endpoint": f"http://{at}", "s3.region": "x"}

        yield f"manifest list, {name}", edited(file, edit)
    hinted = root / "ice-hinted" / "metadata"
    hinted.mkdir(parents=True)
    (hinted / "version-hint.text").write_text("../../elsewhere/other.metadata.json")
    yield "hint with a path", f"iceberg:{root}/ice-hinted"
    linked = iceberg(root / "ice-linked")
    (data,) = (linked.parent.parent / "data").glob("*.parquet")
    data.unlink()
    data.symlink_to(places.secret)
    yield "link to a file", f"iceberg:{linked}"
    yield "data file elsewhere", _registered(root / "ice-registered", places.secret)


def _registered(place: Path, file: Path) -> str:
    catalog = InMemoryCatalog("memory", warehouse=f"file://{place}")
    catalog.create_namespace("n")
    table = catalog.create_table("n.t", SECRET.schema)
    table.add_files([f"file://{file}"])
    return f"iceberg:{table.metadata_location.removeprefix('file://')}"


def deltas(places: Places) -> Iterator[tuple[str, str]]:
    root, secret = places.root, places.secret
    paths = {
        "steps": "../elsewhere/secret.parquet",
        "quoted steps": "%2e%2e/elsewhere/secret.parquet",
        "path": str(secret),
        "url": f"file://{secret}",
        "s3": "s3://bucket/x.parquet",
        "http": f"http://{places.at}/x.parquet",
        "link": "link.parquet",
    }
    for name, path in paths.items():
        place = root / f"delta-{name.replace(' ', '-')}"
        _delta(place, path, secret.stat().st_size)
        if name == "link":
            (place / path).symlink_to(secret)
        yield f"file by {name}", f"delta:{place}"
    log = root / "delta-log"
    deltalake.write_deltalake(log, ROWS)
    (log / "_delta_log").rename(places.outside / "_delta_log")
    (log / "_delta_log").symlink_to(places.outside / "_delta_log")
    yield "link to a log", f"delta:{log}"


def _delta(place: Path, path: str, size: int) -> None:
    deltalake.write_deltalake(place, ROWS, configuration={"delta.appendOnly": "false"})
    (log,) = (place / "_delta_log").glob("*.json")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        if "add" in line:
            line["add"] = {**line["add"], "path": path, "size": size}
            line["add"].pop("stats", None)
        if "metaData" in line:
            line["metaData"]["configuration"] = {"io-impl": HOSTILE, "location": f"{HOSTILE}.X"}
    log.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def parquets(places: Places) -> Iterator[tuple[str, str]]:
    linked = places.root / "linked"
    linked.mkdir()
    pq.write_table(ROWS, linked / "a.parquet")
    (linked / "b.parquet").symlink_to(places.secret)
    yield "link to a file", f"parquet:{linked}"
    yield "link by a pattern", f"parquet:{linked}/*.parquet"
    deeper = places.root / "deeper"
    deeper.mkdir()
    (deeper / "p").symlink_to(places.outside)
    yield "link to a directory", f"parquet:{deeper}"
    typed = places.root / "typed"
    typed.mkdir()
    told = {b"ARROW:extension:name": b"arrow.py_extension_type"}
    told |= {b"ARROW:extension:metadata": b"cplait_hostile\nrun\n(tR."}
    field = pa.field("id", pa.int64(), metadata=told)
    pandas = {b"pandas": json.dumps({"columns": [{"numpy_type": HOSTILE}]}).encode()}
    pq.write_table(ROWS.cast(pa.schema([field], metadata=pandas)), typed / "a.parquet")
    yield "an extension type", f"parquet:{typed}"


def plaits(places: Places) -> Iterator[tuple[str, str]]:
    place = places.root / "plait"
    Table.create(str(place), "id bigint", record_key="id", replicas=[f"eu={places.outside}/made"])
    yield "a table with sinks", f"table:{place}"


def load(
    sources: list[str], places: Places, *allow: str
) -> dict[str, tuple[str, list[str], list[int]]]:
    order = {"outside": str(places.outside), "sources": sources, "allow": list(allow)}
    environment = {name: text for name, text in os.environ.items() if name != "PLAIT_ALLOW"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.processes.hostile.loads"],
        input=json.dumps(order), capture_output=True, text=True, check=False, env=environment,
        timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return {
        each["source"]: (each["outcome"], each["found"], each["ids"])
        for each in json.loads(done.stdout)
    }


def test_a_source_runs_nothing_and_brings_no_rows_from_elsewhere(
    places: Places, listener: Listener
) -> None:
    """Processes, imports, sockets and files elsewhere are forbidden by an audit hook."""
    makers = (icebergs, deltas, parquets, plaits)
    named = {source: f"{m.__name__}, {n}" for m in makers for n, source in m(places)}
    before = sorted(places.outside.rglob("*"))
    answers = load(list(named), places)
    assert {named[each]: found for each, (_, found, _) in answers.items() if found} == {}
    assert [named[each] for each, (_, _, ids) in answers.items() if 666 in ids] == []
    foreign = {named[e]: told for e, (told, _, _) in answers.items() if told.startswith("foreign")}
    assert foreign == {}
    assert listener.calls == []
    assert sorted(places.outside.rglob("*")) == before
    outcomes = {named[each]: told for each, (told, _, _) in answers.items()}
    ignored = [name for name in outcomes if "property" in name or "properties" in name]
    assert {outcomes[name] for name in ignored} == {"done"}
    assert {told for name, told in outcomes.items() if "manifest list" in name} == {"consent"}
    links = {told for name, told in outcomes.items() if "link" in name and "directory" not in name}
    assert links == {"consent"}


def test_a_file_elsewhere_is_read_once_it_is_allowed(places: Places) -> None:
    """The test above can fail: with consent, the same file is read."""
    source = _registered(places.root / "ice", places.secret)
    assert load([source], places)[source] == ("consent", [], [])
    outcome, found, ids = load([source], places, f"{places.outside}/*")[source]
    assert (outcome, ids) == ("done", [666])
    assert found == []  # Arrow opened it, not Python
