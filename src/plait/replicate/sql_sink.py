"""A table of a SQL database as a sink, by SQLAlchemy; the one file that knows the library."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from plait.errors import (
    BadRecordError,
    MissingDependencyError,
    OptionError,
    SchemaMismatchError,
    StorageError,
    redacted_url,
    shown_cause,
    without_secrets,
)
from plait.model.schema import type_name
from plait.replicate.sink import SinkSchema

if TYPE_CHECKING:
    from sqlalchemy import (
        BigInteger,
        Boolean,
        Column,
        Connection,
        Date,
        DateTime,
        Double,
        Engine,
        LargeBinary,
        Numeric,
        Table,
        Text,
    )
    from sqlalchemy.sql.dml import Insert

    SqlType: TypeAlias = (
        BigInteger
        | Boolean
        | Date
        | DateTime
        | Double[float]
        | LargeBinary
        | Numeric[Decimal]
        | Text
    )

_DIALECTS: Final = ("sqlite", "postgresql")
_FETCH: Final = 10_000
_T = pa.types


@dataclass(frozen=True, slots=True)
class SqlSink:
    """A table in SQLite or PostgreSQL. It is created if it does not exist.

    Its columns have the names of the table's columns, and its primary key is the key of the
    schema. So a partition column must not be null. SQLite has no decimals and dates: they are
    stored as texts. Columns of lists, structs and maps are refused.

    Args:
        name: the name of the sink.
        url: a URL of SQLAlchemy, such as ``sqlite:///serving.db``.
        table: the name of the table in the database.
    """

    name: str
    url: str = field(repr=False)
    table: str

    @property
    def removes(self) -> bool:
        """A database removes rows by key."""
        return True

    def open(self, schema: SinkSchema) -> SqlSession:
        """Connect, and create the table if it does not exist.

        Raises:
            MissingDependencyError: SQLAlchemy is not installed.
            OptionError: it is another database, or it cannot order rows by such a column.
            SchemaMismatchError: it cannot hold a column, or its table has other columns.
        """
        engine = _engine(self.url)
        try:
            dialect = engine.dialect.name
            if dialect not in _DIALECTS:
                message = f"a sink cannot be a database of {dialect}"
                hint = f"use one of {', '.join(_DIALECTS)}, or write a sink of your own"
                raise OptionError(message, hint=hint, key="replicas", value=redacted_url(self.url))
            encodings = {each.name: Encoding.of(each, dialect) for each in schema.arrow}
            table = _define(self.table, schema, encodings)
            with _translated(self.table, self.url):
                table.metadata.create_all(engine)
                _check(table, engine)
                connection = engine.connect()
                return SqlSession(engine, connection, table, schema, encodings, self.url)
        except BaseException:
            engine.dispose()
            raise


@dataclass(frozen=True, slots=True)
class Encoding:
    """How a column is stored: as the database's own type, or as a text."""

    column: str
    kind: pa.DataType
    sql: SqlType
    text: bool = False
    rejects_nan: bool = False
    """Whether the database cannot tell NaN from null."""

    @classmethod
    def of(cls, field_: pa.Field, dialect: str) -> Encoding:
        """Choose the encoding of a column.

        Raises:
            SchemaMismatchError: the database cannot hold such values.
        """
        import sqlalchemy as sa  # noqa: PLC0415 - the adapter's library, when it is used

        kind, lite = field_.type, dialect == "sqlite"
        text = sa.Text() if lite else sa.Text(collation="C")  # orders by bytes, as the table does
        if _T.is_nested(kind):
            message = f"column {field_.name!r} is a {type_name(kind)}, which a SQL sink cannot hold"
            raise SchemaMismatchError(message, column=field_.name, found=type_name(kind))
        if _T.is_string(kind):
            return cls(field_.name, kind, text)
        if lite and (_T.is_decimal(kind) or _T.is_date(kind) or _T.is_timestamp(kind)):
            return cls(field_.name, kind, text, text=True)
        return cls(field_.name, kind, _native(kind), rejects_nan=lite and _T.is_floating(kind))

    def values(self, array: pa.Array) -> list[object]:
        """Return the values as the database takes them; raise BadRecordError for one it cannot."""
        if self.rejects_nan and pc.any(pc.is_nan(array)).as_py():
            message = f"column {self.column!r} has a NaN, which SQLite cannot tell from null"
            raise BadRecordError(message, column=self.column, sample={self.column: "nan"})
        if self.text and _T.is_decimal(self.kind):
            return [None if each is None else f"{each:f}" for each in array.to_pylist()]
        if self.text:
            return self._times(array)
        try:
            return list(array.to_pylist())
        except (ValueError, OverflowError) as error:  # a year that Python's dates do not have
            message = f"column {self.column!r} has a value that the database cannot hold: {error}"
            raise BadRecordError(message, column=self.column, sample={}) from error

    def _times(self, array: pa.Array) -> list[object]:
        """Return dates and timestamps as texts that sort by time."""
        texts = array.cast(pa.string())
        if pc.any(pc.invert(pc.match_substring_regex(texts, r"^\d{4}-"))).as_py():
            message = f"column {self.column!r} has a year that is not between 0 and 9999"
            raise BadRecordError(message, column=self.column, sample={})
        return list(texts.to_pylist())

    def array(self, values: Sequence[object]) -> pa.Array:
        """Return values of the database in the table's type."""
        if self.text and _T.is_decimal(self.kind):
            return pa.array([None if v is None else Decimal(str(v)) for v in values], self.kind)
        if self.text:
            return pa.array(values, pa.string()).cast(self.kind)
        return pa.array(values, self.kind)


def _native(kind: pa.DataType) -> SqlType:
    import sqlalchemy as sa  # noqa: PLC0415 - the adapter's library, when it is used

    made: SqlType = sa.LargeBinary()
    if _T.is_boolean(kind):
        made = sa.Boolean()
    elif _T.is_integer(kind):
        made = sa.BigInteger()
    elif _T.is_floating(kind):
        made = sa.Double()
    elif _T.is_decimal(kind):
        made = sa.Numeric(kind.precision, kind.scale)
    elif _T.is_date(kind):
        made = sa.Date()
    elif _T.is_timestamp(kind):
        made = sa.DateTime(timezone=kind.tz is not None)
    return made


def _engine(url: str) -> Engine:
    try:
        import sqlalchemy as sa  # noqa: PLC0415 - the adapter's library, when it is used
    except ImportError as error:
        message = "a SQL sink needs SQLAlchemy"
        raise MissingDependencyError(
            message, hint="pip install 'plait[sql]'", library="sqlalchemy", extra="sql"
        ) from error
    try:
        made = sa.make_url(url)
        # Where parameters have no names, SQLAlchemy looks for "%(name)s" in the statement, and a
        # column may be called so.
        style = {"paramstyle": "named"} if made.get_backend_name() == "sqlite" else {}
        return sa.create_engine(made, poolclass=sa.NullPool, hide_parameters=True, **style)
    except (sa.exc.ArgumentError, ValueError) as error:  # a port that is none is a ValueError
        message = "the address of a SQL sink is not the URL of a database"
        hint = (
            "such as sqlite:///serving.db or postgresql+psycopg://user@host/database; "
            "percent-encode what is special in a user or a password"
        )
        raise OptionError(message, hint=hint, key="url", value="") from shown_cause(error, url)
    except ImportError as error:
        message = f"the driver {error.name} of the database is not installed"
        hint = "pip install 'plait[sql]' and the driver"
        raise MissingDependencyError(message, hint=hint, library=error.name, extra="sql") from error


@contextlib.contextmanager
def _translated(name: str, url: str) -> Iterator[None]:
    """Raise errors of the library as Plait's own, without what is secret in a URL."""
    import sqlalchemy as sa  # noqa: PLC0415 - the adapter's library, when it is used

    try:
        yield
    except (sa.exc.DataError, sa.exc.IntegrityError) as error:
        told = without_secrets(str(error.orig), url)
        message = f"the database refuses a row of table {name!r}: {told}"
        raise BadRecordError(message, column="", sample={}) from shown_cause(error, url)
    except (sa.exc.SQLAlchemyError, UnicodeError) as error:  # a host that is no name
        message = f"the database of table {name!r} failed: {without_secrets(str(error), url)}"
        raise StorageError(message, path=name) from shown_cause(error, url)


def _define(name: str, schema: SinkSchema, encodings: Mapping[str, Encoding]) -> Table:
    import sqlalchemy as sa  # noqa: PLC0415 - the adapter's library, when it is used

    ordering = schema.ordering
    if (
        ordering is not None
        and encodings[ordering].text
        and _T.is_decimal(encodings[ordering].kind)
    ):
        message = f"SQLite cannot order rows by {ordering!r}, because it has no decimals"
        raise OptionError(message, key="replicas", value=ordering)
    columns = [
        sa.Column(
            each.name,
            encodings[each.name].sql,
            key=f"c{at}",  # parameters are called so: a name could be taken for something else
            primary_key=each.name in schema.key,
            nullable=each.nullable and each.name not in schema.key,
            autoincrement=False,
        )
        for at, each in enumerate(schema.arrow)
    ]
    return sa.Table(name, sa.MetaData(), *columns)


def _check(table: Table, engine: Engine) -> None:
    """Refuse a table that existed with other columns or another primary key."""
    import sqlalchemy as sa  # noqa: PLC0415 - the adapter's library, when it is used

    found = sa.inspect(engine)
    names = {str(column["name"]) for column in found.get_columns(table.name)}
    key = set(found.get_pk_constraint(table.name)["constrained_columns"])
    expected = {column.name for column in table.columns}
    if names != expected or key != {column.name for column in table.primary_key}:
        message = f"table {table.name!r} of the database has other columns, or another primary key"
        hint = "use another table, or drop it and repair the sink"
        raise SchemaMismatchError(
            message, hint=hint, column="", expected=sorted(expected), found=sorted(names)
        )


@dataclass(frozen=True, slots=True)
class SqlSession:
    """Sends each batch in one transaction of the database."""

    engine: Engine
    connection: Connection
    table: Table
    schema: SinkSchema
    encodings: Mapping[str, Encoding]
    url: str = field(repr=False)

    def batch_put(self, records: pa.RecordBatch) -> None:
        """Insert or replace the records, in their order."""
        rows = self._rows(records)
        with _translated(self.table.name, self.url), self.connection.begin():
            self.connection.execute(self._upsert(), rows)

    def batch_remove(self, keys: pa.RecordBatch) -> None:
        """Delete rows by key."""
        import sqlalchemy as sa  # noqa: PLC0415 - the adapter's library, when it is used

        named = {f"key_{at}": name for at, name in enumerate(self.schema.key)}
        columns = self._columns
        same = (columns[name] == sa.bindparam(slot) for slot, name in named.items())
        rows = [
            {slot: row[columns[name].key] for slot, name in named.items()}
            for row in self._rows(keys)
        ]
        with _translated(self.table.name, self.url), self.connection.begin():
            self.connection.execute(sa.delete(self.table).where(*same), rows)

    def flush(self) -> None:
        """Return: each batch is committed before its call returns."""

    def held(self) -> Iterator[pa.RecordBatch]:
        """Return the rows of the database's table, as one statement sees them."""
        import sqlalchemy as sa  # noqa: PLC0415 - the adapter's library, when it is used

        names = self.schema.arrow.names
        chosen = sa.select(*(self._columns[name] for name in names))
        with _translated(self.table.name, self.url), self.connection.begin():
            result = self.connection.execution_options(yield_per=_FETCH).execute(chosen)
            for rows in result.partitions():
                columns = zip(*rows, strict=True)
                arrays = [self.encodings[n].array(c) for n, c in zip(names, columns, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, schema=self.schema.arrow)

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()
        self.engine.dispose()

    def _rows(self, records: pa.RecordBatch) -> list[dict[str, object]]:
        """Return the records as the database takes them; raise BadRecordError for a null key."""
        names = records.schema.names
        for name in self.schema.key:
            if records.column(name).null_count:
                message = f"column {name!r} is part of the sink's primary key and is null in a row"
                raise BadRecordError(message, column=name, sample={name: "null"})
        columns = [self.encodings[name].values(records.column(name)) for name in names]
        keys = [self._columns[name].key for name in names]
        return [dict(zip(keys, row, strict=True)) for row in zip(*columns, strict=True)]

    @property
    def _columns(self) -> dict[str, Column[object]]:
        """The columns of the database's table, by their names."""
        return {column.name: column for column in self.table.columns}

    def _upsert(self) -> Insert:
        from sqlalchemy.dialects import postgresql, sqlite  # noqa: PLC0415 - see above

        name, key = self.engine.dialect.name, list(self.schema.key)
        insert = sqlite.insert(self.table) if name == "sqlite" else postgresql.insert(self.table)
        new = insert.excluded
        columns = self._columns
        unique = [columns[each] for each in key]
        names = (name for name in self.schema.arrow.names if name not in key)
        values = {columns[name]: new[columns[name].key] for name in names}
        if not values:
            return insert.on_conflict_do_nothing(index_elements=unique)
        ordering = self.schema.ordering
        wins = None
        if ordering is not None:
            old = columns[ordering]
            wins = old.is_(None) | (new[old.key] >= old)
        return insert.on_conflict_do_update(index_elements=unique, set_=values, where=wins)
