"""What stands in a slot is refused unless it is a decision of a Plait that we know (INV-01)."""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest

from plait.errors import (
    CommitError,
    CorruptMetadataError,
    InvariantError,
    UnsupportedFeatureError,
)
from plait.model.bucket import BucketSpec
from plait.model.changes import ADDED, Changes
from plait.model.decision import UNPUBLISHED, Decision
from plait.model.document import checksum_of, unseal
from plait.model.instant import Action, Instant, Operation
from plait.timeline import codec, paths
from plait.timeline.columns import to_parquet
from plait.timeline.log import Timeline
from tests.support.forge import seal
from tests.support.protocol import memory
from tests.support.records import spec_of

Edit = Callable[[dict[str, object]], object]


def decision(**fields: object) -> Decision:
    row = {"path": "data/a.parquet", "partition": "[]", "bucket": 0, "kind": "base", "rows": 1}
    added = [{**row, "bytes": 1, "order": 0, "schema_id": 0, "footer": 2**64 - 1}]
    changes = Changes(added=pa.Table.from_pylist(added, schema=ADDED))
    return Decision(
        version=3,
        instant=Instant.at(0, "0" * 16),
        action=Action.COMMIT,
        operation=Operation.UPSERT,
        base=2,
        completed_ms=1,
        attempt="a",
        previous="p",
        changes=changes,
        **fields,  # type: ignore[arg-type]  # whatever a test asks for
    )


def decode(data: bytes) -> Decision:
    return Timeline(memory()).decode(3, data)


def edited(edit: Edit) -> bytes:
    _, document = unseal(codec.encode(decision()), path="slot")
    edit(document)
    return seal(document)


def added(document: dict[str, object]) -> dict[str, list[object]]:
    changes = document["changes"]
    assert isinstance(changes, dict)
    section = changes["added"]
    assert isinstance(section, dict)
    return section


def test_what_nobody_could_read_is_not_written() -> None:
    """INV-01, INV-02: numbers that JSON does not have, and what is drafted and has no slot."""
    with pytest.raises(ValueError, match="JSON"):
        codec.encode(decision(client={"ratio": math.nan}))
    with pytest.raises(InvariantError, match="no slot"):
        codec.encode(replace(decision(), version=UNPUBLISHED))


def test_a_decision_gets_no_second_slot() -> None:
    """INV-02, INV-03: once it may be published, it is not published again."""
    spec = spec_of("id BIGINT", "id")
    spec = replace(spec, layout=replace(spec.layout, buckets=BucketSpec(7, ("id",), 2)))
    slot = functools.partial(Decision.in_slot, spec=spec, completed_ms=1, attempt="a", previous="p")
    placed = slot(replace(decision(), version=UNPUBLISHED), version=4)
    assert (placed.version, placed.bucket_spec_id) == (4, 7)
    with pytest.raises(InvariantError, match="again"):
        slot(placed, version=5)


def test_a_decision_is_bounded_to_the_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    """INV-01: what is published can be read."""
    size = len(codec.encode(decision()))
    monkeypatch.setattr(codec, "SLOT_BYTES_MAX", size)
    assert len(codec.encode(decision())) == size
    monkeypatch.setattr(codec, "SLOT_BYTES_MAX", size - 1)
    with pytest.raises(CommitError):
        codec.encode(decision())


def test_a_decision_may_be_completed_at_any_time_since_1970() -> None:
    assert decode(edited(lambda d: d.update(completed_ms=0))).completed_ms == 0
    with pytest.raises(CorruptMetadataError):
        decode(edited(lambda d: d.update(completed_ms=-1)))


@pytest.mark.parametrize(
    "data",
    [
        edited(lambda d: d.update(features=["slots-1", "branches-2"])),
        seal({"version": 3, "features": ["branches-2"], "changes": "elsewhere"}),
    ],
    ids=["known otherwise", "all is new"],
)
def test_an_unknown_feature_is_refused_by_name(data: bytes) -> None:
    with pytest.raises(UnsupportedFeatureError) as caught:
        decode(data)
    assert caught.value.features == ["branches-2"]
    assert "branches-2" in str(caught.value)


OUTSIDE = (
    "/etc/passwd", "../a", "a/../../b", "a//b", "./a", "", "a\\b", "a\0b", "C:/a", "s3://b/a",
    "a/.",
)  # fmt: skip


@pytest.mark.parametrize("path", OUTSIDE)
@pytest.mark.parametrize("column", ["path", "dv_path", "key_path", "condemned", "deleted"])
def test_a_path_that_leaves_the_table_is_refused(path: str, column: str) -> None:
    masked = {"path": ["a"], "rows": [1], "dv_path": [path], "dv_offset": [1], "dv_bytes": [1]}
    touched = {"partition": ["[]"], "bucket": [0], "keys": ["sidecar"], "key_count": [1]}
    cleaned: dict[str, object] = {"horizon": 0, "final": 0, "condemned": [], "deleted": []}
    edits: dict[str, Edit] = {
        "path": lambda d: added(d).update(path=[path]),
        "dv_path": lambda d: d.update(changes={"masked": masked}),
        "key_path": lambda d: d.update(changes={"touched": {**touched, "key_path": [path]}}),
        "condemned": lambda d: d.update(cleaned={**cleaned, "condemned": [[path, 1]]}),
        "deleted": lambda d: d.update(cleaned={**cleaned, "deleted": [path]}),
    }
    with pytest.raises(CorruptMetadataError):
        decode(edited(edits[column]))


@pytest.mark.parametrize(
    "cleaned",
    [
        {"horizon": 1, "final": 2, "condemned": [], "deleted": []},
        {"horizon": 1, "final": -1, "condemned": [], "deleted": []},
        {"horizon": 1, "condemned": [], "deleted": []},
        {"horizon": 1, "final": 1, "condemned": [], "deleted": [], "undo": "1"},
    ],
)
def test_a_clean_that_lets_go_of_readable_versions_is_refused(cleaned: dict[str, object]) -> None:
    with pytest.raises(CorruptMetadataError):
        decode(edited(lambda d: d.update(cleaned=cleaned)))


@pytest.mark.parametrize(
    "manifest",
    [
        "data/a.parquet",
        ".meta/manifests/../../../a",
        "/etc/passwd",
        ".meta/manifests/missing.parquet",
        7,
        None,
    ],
)
def test_a_manifest_that_is_elsewhere_is_refused(manifest: object) -> None:
    reference = {"manifest": manifest, "rows": 1, "sha256": "0" * 64}
    with pytest.raises(CorruptMetadataError):
        decode(edited(lambda d: d.update(changes={"added": reference})))


EDITS: dict[str, Edit] = {
    "version as text": lambda d: d.update(version="3"),
    "version as bool": lambda d: d.update(version=True),
    "instant that is none": lambda d: d.update(instant="20260101-x"),
    "month 13": lambda d: d.update(instant="20261301000000000-0000000000000000"),
    "unknown action": lambda d: d.update(action="perhaps"),
    "action as list": lambda d: d.update(action=[]),
    "columns of two lengths": lambda d: added(d).update(rows=[1, 2]),
    "null where there is none": lambda d: added(d).update(rows=[None]),
    "a number beyond 64 bits": lambda d: added(d).update(rows=[2**70]),
    "a number beyond 32 bits": lambda d: added(d).update(bucket=[2**40]),
    "negative rows": lambda d: added(d).update(rows=[-1]),
    "partition that is none": lambda d: added(d).update(partition=["a"]),
    "partition of numbers": lambda d: added(d).update(partition=["[1]"]),
    "stats of another kind": lambda d: d.update(stats={"rows_in": "many"}),
    "scope as text": lambda d: d.update(scope="table"),
    "rollback of nothing": lambda d: d.update(rolled_back={}),
    "rollback of an instant that is none": lambda d: d.update(
        rolled_back=[{"instant": "x", "reason": "", "partitions": []}]
    ),
    "tokens of three": lambda d: d.update(tokens=[["a", 1, "b"]]),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS.keys())
def test_a_sealed_document_that_is_no_decision_is_refused(edit: Edit) -> None:
    """INV-01: nothing but CorruptMetadataError comes of it, naming the slot."""
    with pytest.raises(CorruptMetadataError) as caught:
        decode(edited(edit))
    assert str(caught.value.path).startswith((".meta/timeline/", "slot"))


OTHER_SHAPES: dict[str, tuple[Edit, list[str]]] = {
    "no version": (lambda d: d.pop("version"), ["no version"]),
    "an unknown section": (lambda d: d.update(changes={"else": {}}), ["changes.else"]),
    "an unknown column": (lambda d: added(d).update(color=["red"]), ["changes.added.color"]),
    "a missing column": (lambda d: added(d).pop("rows"), ["changes.added.no rows"]),
    "an unknown number": (lambda d: d.update(stats={"rows_lost": 1}), ["stats.rows_lost"]),
    "a column of old and none of now": (
        lambda d: added(d).update(sorted=added(d).pop("order")),
        ["changes.added.sorted", "changes.added.no order"],
    ),
}


@pytest.mark.parametrize(("edit", "parts"), OTHER_SHAPES.values(), ids=OTHER_SHAPES.keys())
def test_a_whole_document_of_another_shape_is_another_format(edit: Edit, parts: list[str]) -> None:
    """It is no damage: whoever restores a backup for it would wait in vain."""
    with pytest.raises(UnsupportedFeatureError) as caught:
        decode(edited(edit))
    assert caught.value.features == parts
    assert str(caught.value.path).startswith((".meta/timeline/", "slot"))


def test_a_manifest_without_a_column_is_another_format() -> None:
    store = memory()
    table = decision().changes.added.drop_columns(["rows"])
    body = to_parquet(table)
    path = f"{paths.MANIFESTS}/one.parquet"
    store.put(path, body)
    digest = hashlib.sha256(body).hexdigest()
    reference = {"manifest": path, "rows": table.num_rows, "sha256": digest}
    data = edited(lambda d: d.update(changes={"added": reference}))
    with pytest.raises(UnsupportedFeatureError) as caught:
        Timeline(store).decode(3, data)
    assert caught.value.features == ["no rows"]


def test_deeply_nested_metadata_is_refused() -> None:
    nested = b"[" * 200_000 + b"]" * 200_000
    body = b'{"version":3,"client":' + nested + b"}"
    sealed = b'{"checksum":"%s",\n"decision":%s}\n' % (checksum_of(body).encode(), body)
    with pytest.raises(CorruptMetadataError):
        decode(sealed)


def test_a_slot_of_another_version_is_refused() -> None:
    """INV-02."""
    with pytest.raises(CorruptMetadataError) as caught:
        Timeline(memory()).decode(4, codec.encode(decision()))
    assert (caught.value.expected, caught.value.found) == (4, 3)
