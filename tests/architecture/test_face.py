"""The face of a table (RFC 0040): few names, one rule for properties, one form of plans."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from plait import OptionError, Table
from plait.testing import CountingStore, open_wrapped
from plait.txn.table_handle import Namespace

NAMES_MAX = 30
IN_A_NAMESPACE_MAX = 15
NAMESPACES = {
    "alter",
    "check",
    "index",
    "inspect",
    "layout",
    "maintenance",
    "replicas",
    "versions",
}
PLANNED = {
    "alter.downgrade": {"to": 1},
    "alter.upgrade": {},
    "check.repair": {},
    "maintenance.archive": {},
    "maintenance.clean": {},
    "maintenance.cluster": {"order_by": "id"},
    "maintenance.compact": {},
    "maintenance.expire": {"ttl": "at 30d row"},
    "maintenance.rebuild_metadata": {},
    "versions.replay": {},
    "versions.restore": {"version": 0},
    "versions.undo": {},
}
WITHOUT_PLAN = {"check.repair_from_replica"}
"""Its dry run says what is damaged; what is done about it depends on the replica."""
RFC = Path(__file__).resolve().parents[2] / "rfc" / "accepted" / "0040-the-face-of-a-table.md"


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def properties(kind: type) -> set[str]:
    return {name for name in public(kind) if isinstance(getattr(kind, name), property)}


def spaces(table: Table) -> dict[str, Namespace]:
    found = {name: getattr(table, name) for name in NAMESPACES}
    assert all(isinstance(each, Namespace) for each in found.values())
    return found


def call(table: Table, path: str) -> object:
    space, name = path.split(".")
    return getattr(getattr(table, space), name)


@pytest.fixture
def uri(request: pytest.FixtureRequest) -> str:
    return f"memory://face-{request.node.name}"


@pytest.fixture
def table(uri: str) -> Table:
    made = Table.create(uri, "id bigint, at timestamp", record_key="id")
    made.upsert(pa.table({"id": [1, 2], "at": pa.array([None, None], pa.timestamp("us", "UTC"))}))
    return made


def test_a_table_shows_thirty_names_at_most() -> None:
    assert len(public(Table)) <= NAMES_MAX, sorted(public(Table))


def test_a_namespace_shows_fifteen_names_at_most(table: Table) -> None:
    for name, space in spaces(table).items():
        assert len(public(type(space))) <= IN_A_NAMESPACE_MAX, name


def test_the_rfc_has_every_name(table: Table) -> None:
    page = RFC.read_text(encoding="utf-8")
    assert not [name for name in public(Table) if f"`{name}" not in page and f".{name}" not in page]
    for space, found in spaces(table).items():
        row = next(line for line in page.splitlines() if line.startswith(f"| `{space}` |"))
        assert not [name for name in public(type(found)) if f"`{name}`" not in row], space


def test_a_property_costs_no_more_than_a_look_at_the_head(uri: str) -> None:
    Table.create(uri, "id bigint", record_key="id").upsert(pa.table({"id": [1]}))
    opened, store = open_wrapped(uri, CountingStore)
    inside = {space: properties(type(getattr(opened, space))) for space in NAMESPACES}
    assert {space: names for space, names in inside.items() if names} == {
        "versions": {"savepoints"}
    }
    assert properties(Table) == {"version", "schema", "properties", *NAMESPACES}
    _ = opened.version

    def calls(act: Callable[[], object]) -> int:
        before = len(store.calls)
        act()
        return len(store.calls) - before

    look = calls(lambda: opened.version)
    for name in properties(Table):
        assert calls(lambda name=name: getattr(opened, name)) == (0 if name in NAMESPACES else look)
    assert calls(lambda: opened.versions.savepoints) == look


def test_what_has_a_dry_run_takes_its_plan_first(table: Table) -> None:
    found = set()
    for space, each in spaces(table).items():
        for name in public(type(each)) - properties(type(each)):
            given = inspect.signature(getattr(each, name)).parameters
            if "dry_run" in given:
                found.add(f"{space}.{name}")
                first = next(iter(given.values()))
                if f"{space}.{name}" not in WITHOUT_PLAN:
                    assert (first.name, first.default) == ("plan", None), name
                    assert {p.kind for p in list(given.values())[1:]} == {first.KEYWORD_ONLY}, name
            assert not name.startswith("plan"), name
    assert found == {*PLANNED, *WITHOUT_PLAN}


@pytest.mark.parametrize("path", PLANNED)
def test_a_dry_run_writes_nothing_and_its_plan_can_be_executed(table: Table, path: str) -> None:
    before = table.version
    act = call(table, path)
    plan = act(**PLANNED[path], dry_run=True)  # type: ignore[operator]
    assert type(plan).__name__.endswith("Plan")
    assert table.version == before
    act(plan)  # type: ignore[operator]
    for twice in ({"dry_run": True}, PLANNED[path]):
        if twice:
            with pytest.raises(OptionError) as caught:
                act(plan, **twice)  # type: ignore[operator]
            assert caught.value.key == "plan"


@pytest.mark.parametrize("path", PLANNED)
def test_what_is_no_plan_is_refused(table: Table, path: str) -> None:
    before = table.version
    with pytest.raises(OptionError) as caught:
        call(table, path)(1)  # type: ignore[operator]
    assert caught.value.key == "plan"
    assert table.version == before


def test_a_namespace_works_under_the_contract_that_its_table_has_now(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "t"), "id bigint", record_key="id")
    kept = table.maintenance
    table.alter.contract(lock="none")
    assert kept.clean().version is None
    table.append(pa.table({"id": [1]}))
    assert kept.compact(full=True).commits == ()
