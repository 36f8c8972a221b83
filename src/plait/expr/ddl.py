"""DDL text to schemas: ``id bigint not null, tags array<string>``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from plait.expr.parser import SCHEMA, parsed, refused, start_of
from plait.model.schema import NESTING_MAX, plain_type

if TYPE_CHECKING:
    from sqlglot import exp

_TYPE_PARTS: Final = frozenset(("this", "expressions", "nested"))
_PLAIN: Final = {
    "BOOLEAN": "boolean",
    "TINYINT": "tinyint",
    "SMALLINT": "smallint",
    "INT": "int",
    "BIGINT": "bigint",
    "FLOAT": "float",
    "DOUBLE": "double",
    "TEXT": "string",
    "CHAR": "string",
    "VARCHAR": "string",
    "BINARY": "binary",
    "DATE": "date",
    "TIMESTAMPTZ": "timestamp",
    "TIMESTAMPLTZ": "timestamp",
    "TIMESTAMPNTZ": "timestamp_ntz",
}


def parse_ddl(text: str) -> pa.Schema:
    """Return the schema that column definitions say, as Spark reads them.

    ``char(n)`` and ``varchar(n)`` are strings, of any length; comments are passed over.

    Raises:
        SchemaError: the text is not one, with the position.

    >>> parse_ddl("id bigint not null, amount decimal(10,2)").names
    ['id', 'amount']
    """
    with parsed(text, SCHEMA) as tree:
        struct = tree.args.get("to")
        columns = struct.expressions if struct is not None else []
        fields: list[pa.Field] = []
        try:
            fields.extend(_fields(columns, 0))
        except ValueError as error:
            raise refused(text, SCHEMA, str(error), start_of(columns[len(fields)])) from error
    if not fields:
        why = "expected a column"
        raise refused(text, SCHEMA, why)
    return pa.schema(fields)


def type_of(kind: exp.Expr, depth: int = 0) -> pa.DataType:
    """Return the Arrow type that the parser's type means; raise ValueError if there is none."""
    if depth > NESTING_MAX:
        raise ValueError("expected fewer nested types")
    more = [name for name, value in kind.args.items() if value and name not in _TYPE_PARTS]
    if more:  # it would be lost, as a collation is inside of a type
        raise ValueError(f"{more[0].upper()} {kind.args[more[0]]} is not supported")
    name, parts = kind.this.name, kind.expressions
    match name, len(parts):
        case "ARRAY", 1:
            return pa.list_(pa.field("element", type_of(parts[0], depth + 1)))
        case "MAP", 2:
            return pa.map_(*(type_of(part, depth + 1) for part in parts))
        case "STRUCT", count if count:
            return pa.struct(list(_fields(parts, depth + 1)))
        case "DECIMAL", 0:
            return pa.decimal128(10, 0)
        case "DECIMAL", 1 | 2:
            scale = parts[1].name if len(parts) > 1 else "0"
            return plain_type(f"decimal({parts[0].name},{scale})")
        case ("CHAR" | "VARCHAR") as plain, 1:  # of any length
            return plain_type(_PLAIN[plain])
        case plain, 0 if plain in _PLAIN:
            return plain_type(_PLAIN[plain])
    message = f"unsupported column type {name}" + (f" of {len(parts)} parts" if parts else "")
    raise ValueError(message)


def _fields(columns: Sequence[exp.Expr], depth: int) -> Iterator[pa.Field]:
    known: set[str] = set()
    for column in columns:
        name, kind = column.name, column.args.get("kind")
        if column.key != "columndef" or kind is None:
            raise ValueError("expected a name and a type")
        if name.lower() in known:
            raise ValueError(f"expected one column called {name!r}, whatever its case")
        known.add(name.lower())
        nullable = True
        for constraint in column.args.get("constraints") or ():
            if constraint.kind.key == "notnullcolumnconstraint":
                nullable = bool(constraint.kind.args.get("allow_null"))
            elif constraint.kind.key != "commentcolumnconstraint":
                raise ValueError(f"{constraint.sql(dialect='spark')[:80]} is not supported")
        yield pa.field(name, type_of(kind, depth), nullable)
