"""What can be a table is checked when it is created, and what can be a schema."""

from __future__ import annotations

import pyarrow as pa
import pytest

from plait.definition.create import arrow_schema, define_table
from plait.errors import OptionError, SchemaError

FLOAT = pa.schema([("id", pa.int64()), ("price", pa.float64())])


@pytest.mark.parametrize(
    "definition",
    [{"record_key": "price"}, {"record_key": "id", "partition_by": "price"}],
    ids=["key", "partition"],
)
def test_a_float_can_be_no_key_and_no_partition(definition: dict[str, str]) -> None:
    """INV-08: two that print alike may differ."""
    with pytest.raises(SchemaError) as caught:
        define_table(FLOAT, **definition)  # type: ignore[arg-type]  # of both cases
    assert caught.value.column == "price"


def test_a_schema_of_spark_is_read_by_its_ddl() -> None:
    class StructType:
        def toDDL(self) -> str:  # noqa: N802 - Spark's name
            return "id bigint, price double"

    assert arrow_schema(StructType()) == arrow_schema("id bigint, price double")
    with pytest.raises(OptionError) as caught:
        arrow_schema(7)
    assert caught.value.key == "schema"
