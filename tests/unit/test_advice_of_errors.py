"""What an error advises does not lose anything, and can be done."""

from __future__ import annotations

import pyarrow as pa
import pytest

from plait import Table
from plait.errors import (
    DuplicateKeyError,
    OptionError,
    RetryableConflictError,
    SchemaMismatchError,
)

COLUMNS = "id bigint, n bigint"


def rows(*numbers: int, name: str = "id") -> pa.Table:
    return pa.table({name: numbers, "n": [1] * len(numbers)})


@pytest.fixture
def table(request: pytest.FixtureRequest) -> Table:
    made = Table.create(f"memory://{request.node.name}", COLUMNS, record_key=["id"])
    made.upsert(rows(1, 2))
    return made


def test_rows_that_rest_on_a_read_are_to_be_computed_anew_and_others_written_again(
    table: Table,
) -> None:
    """The same rows again, with a newer version named, would overwrite what came between."""
    seen = table.scan()
    table.upsert(rows(1))
    with pytest.raises(RetryableConflictError) as caught:
        table.upsert(rows(1), read_from=seen)
    assert "depend on a read of version 1; read and compute them again" in caught.value.hint
    with pytest.raises(RetryableConflictError) as caught, table.transaction() as tx:  # noqa: PT012 - all of it is the case
        tx.scan().to_arrow()
        table.upsert(rows(1))
        tx.upsert(rows(1))
    assert "read and compute them again" in caught.value.hint
    with pytest.raises(RetryableConflictError) as caught, table.writer("upsert") as writer:  # noqa: PT012 - the same
        table.upsert(rows(1))
        writer.write(rows(1))
    assert "on_conflict='retry'" in caught.value.hint


def test_a_key_that_is_there_is_named_with_its_place(table: Table) -> None:
    with pytest.raises(DuplicateKeyError) as caught:
        table.insert(rows(1))
    assert str(caught.value).startswith("a key already exists in the table: {'id': 1}")


def test_a_column_in_other_letters_is_recognised(table: Table) -> None:
    with pytest.raises(SchemaMismatchError) as caught:
        table.upsert(rows(1, name="ID"))
    assert caught.value.hint == "did you mean 'id'?"


def test_a_version_that_is_passed_as_a_plan_is_refused_with_the_remedy(table: Table) -> None:
    """As a person would type it."""
    with pytest.raises(OptionError, match="version="):
        table.versions.restore(0)  # type: ignore[arg-type]
    assert table.version == 1
