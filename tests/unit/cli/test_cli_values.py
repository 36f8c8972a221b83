"""Values that neither JSON nor Python can spell: in every command and in every error."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Never

import pyarrow as pa
import pytest

from plait import Table, Update
from plait.errors import BadRecordError, ConstraintError, DuplicateKeyError, TableError, plain
from plait.files.sample import sample_of
from plait.model.value import is_plain, plain_value, shown_value, to_text
from tests.support.build import make
from tests.support.extremes import LEAVES, WRAPS, column

_KEYS = [name for name in LEAVES if name not in ("float", "double")]
_table = partial(make, record_key=())


def _strict(text: str) -> object:
    def refuse(constant: str) -> Never:
        raise AssertionError(constant)

    found: object = json.loads(text, parse_constant=refuse)
    text.encode()
    return found


def _told(error: TableError) -> dict[str, object]:
    """Return an error as JSON has it, having looked at all of its forms."""
    str(error).encode()
    found = _strict(json.dumps(error.to_dict(), allow_nan=False))
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("wrap", WRAPS)
@pytest.mark.parametrize("leaf", LEAVES)
def test_every_value_has_a_form_in_json_and_a_text(leaf: str, wrap: str) -> None:
    _, values = column(leaf, wrap)
    for value in values:
        form = plain_value(value)
        assert _strict(json.dumps(form, allow_nan=False)) == form == plain(form)
        assert shown_value(value) or leaf in ("string", "binary")
        if is_plain(value.type) and value.is_valid and isinstance(form, str):
            assert form == to_text(value, value.type)


@pytest.mark.long(17)
@pytest.mark.parametrize("wrap", WRAPS)
@pytest.mark.parametrize("leaf", LEAVES)
def test_every_value_may_stand_in_the_sample_of_an_error(leaf: str, wrap: str) -> None:
    ddl, values = column(leaf, wrap)
    count = len(values)
    table = _table(
        f"id bigint, must int not null, c {ddl}", record_key="id", checks={"small": "id < 100"}
    )
    rows = pa.table({"id": list(range(count)), "must": [1] * count, "c": values})
    table.upsert(rows)
    for at in range(count):
        row = rows.slice(at, 1)
        lacking = row.set_column(1, "must", pa.nulls(1, pa.int32()))
        beyond = row.set_column(0, "id", pa.array([100 + at]))
        with pytest.raises(BadRecordError) as told:
            table.upsert(lacking)
        assert (
            _told(told.value)["facts"]["sample"]["c"]
            == sample_of(  # type: ignore[index]
                row.to_batches()[0], 0, "c"
            )["c"]
        )
        with pytest.raises(ConstraintError) as told:
            table.upsert(beyond)
        _told(told.value)
        with pytest.raises(BadRecordError) as told:
            table.overwrite(row, where="id < 0")
        _told(told.value)


@pytest.mark.parametrize("leaf", _KEYS)
def test_every_key_may_stand_in_an_error(leaf: str) -> None:
    table = _table(f"k {leaf}, n bigint", record_key="k", buckets=1)
    rows = pa.table({"k": LEAVES[leaf], "n": list(range(len(LEAVES[leaf])))})
    table.upsert(rows)
    for at in range(len(rows)):
        row = rows.slice(at, 1)
        for write in (
            lambda row=row: table.insert(row),
            lambda row=row: table.insert(pa.concat_tables([row, row])),
            lambda row=row: table.merge(pa.concat_tables([row, row]), matched=Update()),
        ):
            with pytest.raises(DuplicateKeyError) as told:
                write()
            facts = _told(told.value)["facts"]
            assert facts["keys"] == [{"k": plain_value(row["k"][0])}]  # type: ignore[index]


@pytest.mark.parametrize("wrap", ["alone", "map", "deep"])
def test_every_value_may_stand_in_what_a_command_shows(tablectl, tmp_path: Path, wrap: str) -> None:
    columns = {f"c{at}": column(leaf, wrap) for at, leaf in enumerate(LEAVES)}
    count = max(len(values) for _, values in columns.values())
    ddl = ", ".join(f"{name} {ddl}" for name, (ddl, _) in columns.items())
    place = str(tmp_path / "t")
    table = Table.create(place, f"id bigint, {ddl}", record_key="id")
    padded = {
        name: pa.concat_arrays([values, pa.nulls(count - len(values), values.type)])
        for name, (_, values) in columns.items()
    }
    ids = pa.array(range(count))
    table.append(pa.table({"id": ids}))
    table.upsert(pa.table({"id": ids, **padded}))
    rows = (["diff", place, "--since", "1"], ["compare", place, place, "--versions", "1", "2"])
    others = ("describe", "history", "files", "schema", "timeline", "verify")
    for command in (*rows, *([each, place] for each in others if wrap == "alone")):
        for form in ([], ["--json"], ["--jsonl"]):
            found = tablectl(*form, *command)
            assert found.code in (0, 8), (command, found.err)
            for line in found.out.split("\n") if form == ["--jsonl"] else [found.out]:
                if form and line:
                    _strict(line)


def test_every_value_may_be_a_partition_that_commands_show(tablectl, tmp_path: Path) -> None:
    place = str(tmp_path / "t")
    names = {f"p{at}": leaf for at, leaf in enumerate(_KEYS)}
    schema = ", ".join(f"{name} {leaf}" for name, leaf in names.items())
    table = Table.create(place, f"{schema}, n bigint", partition_by=list(names))
    numbers = range(max(len(LEAVES[leaf]) for leaf in _KEYS))
    columns = {
        name: LEAVES[leaf].take(pa.array([number % len(LEAVES[leaf]) for number in numbers]))
        for name, leaf in names.items()
    }
    table.append(pa.table({**columns, "n": list(numbers)}))
    for command in ("files", "describe", "history", "timeline", "verify"):
        for form in ([], ["--json"]):
            found = tablectl(*form, command, place)
            assert found.code == 0, found.err
            assert not form or _strict(found.out)


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb", "\x1b[31m"])
def test_half_a_character_in_an_argument_is_refused_in_every_form(
    tablectl, tmp_path: Path, text: str
) -> None:
    place = str(tmp_path / "t")
    Table.create(place, "id bigint, v string").append(pa.table({"id": [1], "v": ["a"]}))
    for form in ([], ["--json"]):
        for command in (
            ["compare", place, place, "--where", f"v = '{text}'"],
            ["compare", place, place, "--columns", text],
            ["describe", place + text],
            ["set", place, f"{text}=1"],
            ["savepoint", "create", place, text],
        ):
            found = tablectl(*form, *command)
            (found.out + found.err).encode()
            assert found.code != 70, (command, found.err)
            assert "bug in Plait" not in found.err, (command, found.err)
