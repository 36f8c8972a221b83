"""What Spark is asked to compute, as columns: nothing that a session's settings read in two ways.

What SQL text means is for the settings of its session to say: which type ``TIMESTAMP`` is, what a
backslash or a name in backticks stands for, whether ``${x}`` is a variable. So this package hands
Spark columns, never text. A column is named by ``Values.column``, a value is a literal that is cast
to an object of Spark's types, and a function comes from ``pyspark.sql.functions``. The exception
are predicates (``expr/spark_sql.py``), since long lists of values would be slow as objects. Their
text has aliases for names, and literals that mean the same under every setting.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Self

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from plait.expr import Predicate, to_sql
from plait.expr.spark_sql import readable
from plait.files.fitting import find_child
from plait.model.evolution import is_wider
from plait.model.schema import id_of, parts_of, type_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

_T = pa.types


def is_connect(thing: object) -> bool:
    """Tell whether a DataFrame or session is one of Spark Connect."""
    return ".connect." in type(thing).__module__


def quoted(name: str) -> str:
    """Write a name as Spark takes it where it takes names: in ``col``, never in SQL text.

    >>> quoted("a.`b")
    '`a.``b`'
    """
    return "`" + name.replace("`", "``") + "`"


def spark_schema(schema: pa.Schema) -> StructType:
    """Return the Spark schema in which columns of a table are read; every column may be null."""
    return from_arrow_schema(schema, prefer_timestamp_ntz=True).toNullable()


def spark_type(kind: pa.DataType) -> DataType:
    """Return the Spark type in which values of a type are read."""
    return spark_schema(pa.schema([pa.field("value", kind)]))[0].dataType


@dataclass(frozen=True, slots=True)
class Values:
    """Makes columns for a session."""

    functions: ModuleType
    """``pyspark.sql.functions``, or what a session of Spark Connect has for it."""

    @classmethod
    def of(cls, thing: DataFrame | SparkSession) -> Self:
        """Make columns for a DataFrame or session, whatever the process's default is."""
        if is_connect(thing):
            from pyspark.sql.connect import functions  # noqa: PLC0415 - only where it is in use
        else:
            from pyspark.sql import functions  # type: ignore[no-redef]  # noqa: PLC0415 - the same
        return cls(functions)

    def column(self, *path: str) -> Column:
        """Return a column, or a member of it."""
        named: Column = self.functions.col(".".join(map(quoted, path)))
        return named

    def literal(self, text: str | None, kind: pa.DataType) -> Column:
        """Return a value, by its canonical text, of exactly its type; None for null."""
        lit, wanted = self.functions.lit, spark_type(kind)
        if text is None or _T.is_string(kind):
            value: Column = lit(text).cast(wanted)
        elif _T.is_boolean(kind):
            value = lit(text == "true")
        elif _T.is_binary(kind):
            value = self.functions.unhex(lit(text))
        else:
            value = lit(readable(text, kind)).cast(wanted)
        return value

    def holds(self, predicate: Predicate, aliases: Mapping[tuple[str, ...], str]) -> Column:
        """Return a predicate over columns that have aliases."""
        condition: Column = self.functions.expr(to_sql(predicate, aliases))
        return condition

    def fitted(
        self, value: Column, stored: pa.Field, wanted: pa.Field, *, hidden: bool = False
    ) -> Column:
        """Return values of a column as another schema has them, as ``files.fitting`` does.

        Members of structs are told apart by their ids, on every level: one that has a new name, a
        new place or a wider type keeps its values, and one that only has the name of a dropped
        member has none. Spark by itself would match names, or places in a cast.

        Args:
            value: values of the type ``stored``.
            stored: the field as the values have it.
            wanted: the field as it is to be.
            hidden: whether Spark must not let Parquet's reader judge floating-point values. That
                reader compares bits: it skips a row group whose dictionary has ``-0.0`` alone
                where ``0.0`` is asked for, and bounds do not count NaN. It sees filters on columns
                only, so a function that changes nothing keeps them from it, filters of callers
                too. In lists and maps it judges nothing.
        """
        f, source, target = self.functions, stored.type, wanted.type
        if _T.is_struct(source) and _T.is_struct(target):
            return self._struct(value, stored, wanted, hidden=hidden)
        if unchanged(stored, wanted):
            return self._opaque(value) if hidden and _T.is_floating(target) else value
        fitted: Column
        if _T.is_list(source) and _T.is_list(target):
            parts = source.value_field, target.value_field
            fitted = f.transform(value, lambda item: self.fitted(item, *parts))
        elif _T.is_map(source) and _T.is_map(target):
            # No change of columns reaches the key of a map. To build a map anew from keys would
            # have Spark look for duplicates, and do with them what a setting says.
            items = source.item_field, target.item_field
            fitted = f.transform_values(value, lambda _, item: self.fitted(item, *items))
        elif is_wider(source, target):
            fitted = self._narrowed(value, source, wanted)
        else:
            fitted = value.cast(spark_type(target))
        return self._opaque(fitted) if hidden and _T.is_floating(target) else fitted

    def member(
        self, value: Column, stored: pa.Field, wanted: pa.Field, path: Sequence[str]
    ) -> Column:
        """Return what is at a path below a column, as another schema has it; see ``fitted``."""
        if not path:
            return self.fitted(value, stored, wanted, hidden=True)
        below = wanted.type.field(path[0])
        found = find_child(parts_of(stored.type), below)
        if found is None:
            for name in path[1:]:
                below = below.type.field(name)
            return self.literal(None, below.type)
        child = stored.type.field(found)
        return self.member(value.getField(child.name), child, below, path[1:])

    def _struct(self, value: Column, stored: pa.Field, wanted: pa.Field, *, hidden: bool) -> Column:
        f, children, members = self.functions, parts_of(stored.type), parts_of(wanted.type)
        if unchanged(stored, wanted):
            # The struct itself stays, so that Spark still reads only those members that it needs.
            for child in children if hidden else ():
                if _has_floats(child.type):
                    inner = self.fitted(value.getField(child.name), child, child, hidden=True)
                    value = value.withField(quoted(child.name), inner)
            return value
        parts: list[Column] = []
        for member in members:
            found = find_child(children, member)
            if found is None:
                part = self.literal(None, member.type)
            else:
                child = children[found]
                part = self.fitted(value.getField(child.name), child, member, hidden=hidden)
            parts += (f.lit(member.name), part)
        rebuilt: Column = f.when(value.isNotNull(), f.named_struct(*parts))
        return rebuilt

    def _narrowed(self, value: Column, source: pa.DataType, wanted: pa.Field) -> Column:
        """Return values of a wider type, none of them altered: a cast alone rounds and cuts."""
        f = self.functions
        narrow = value.try_cast(spark_type(wanted.type))
        found, expected = type_name(source), type_name(wanted.type)
        message = f"column {wanted.name!r} has values of {found} that {expected} does not have; "
        message += f"read them as of a version in which the column is {found}"
        same = narrow.cast(spark_type(source)).eqNullSafe(value)
        checked: Column = f.when(same, narrow).otherwise(f.raise_error(f.lit(message)))
        return checked

    def _opaque(self, value: Column) -> Column:
        """Return the same values by a function that Spark neither resolves nor pushes down."""
        same: Column = self.functions.nanvl(value, value)
        return same


def unchanged(stored: pa.Field, wanted: pa.Field) -> bool:
    """Tell whether two fields have equal types of the same members; their own names may differ."""
    one, other = parts_of(stored.type), parts_of(wanted.type)
    if not one and not other:
        return bool(stored.type == wanted.type)
    return (
        stored.type.id == wanted.type.id
        and len(one) == len(other)
        and all(
            a.name == b.name and id_of(a) == id_of(b) and unchanged(a, b)
            for a, b in zip(one, other, strict=True)
        )
    )


def _has_floats(kind: pa.DataType) -> bool:
    """Tell whether there are floating-point values that Parquet's reader may judge."""
    if _T.is_struct(kind):
        return any(_has_floats(child.type) for child in kind.fields)
    return bool(_T.is_floating(kind))


def aliases_of(
    paths: Iterable[tuple[str, ...]], taken: Iterable[str]
) -> dict[tuple[str, ...], str]:
    """Return a name for each path that SQL text may have without quotes, and no column has."""
    prefix, names = "__plait_", [name.lower() for name in taken]
    while any(name.startswith(prefix) for name in names):
        prefix += "_"
    return {path: f"{prefix}{at}" for at, path in enumerate(dict.fromkeys(paths))}
