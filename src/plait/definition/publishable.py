"""What cannot be said in a published format, and is refused before it is decided (RFC 0046).

Readers of a Delta log find the columns of a file by their names. So in a table that is published as
Delta, each live file has each column under the name that the schema says for files, and no name
that meant something else. Schemas of this release see to it (``with_stored_names``); older ones did
not. Readers of Iceberg go by field ids, as Plait does; there it is types that cannot all be said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from plait.errors import PublishRefusedError
from plait.model.evolution import is_wider
from plait.model.schema import Schema, id_of, parts_of

_WAY_ROUND = (
    "set publish='', change the table, let `tablectl repush URI` write every file anew, and set "
    "publish again"
)


_NO_MEMBER = "files that are live have none of its members, so nobody sees where it is null"


@dataclass(frozen=True, slots=True)
class _Misfit:
    """A column that a file says in another way than the schema."""

    column: str
    change: str
    why: str


def require_publishable(
    targets: Iterable[str], schema: Schema, file_schemas: Sequence[Schema]
) -> None:
    """Refuse a schema under which some live file would be read wrong by other engines.

    Args:
        targets: the formats in which the table is published.
        schema: that of the table from then on.
        file_schemas: the schemas of the files that are live then.

    Raises:
        PublishRefusedError: with what cannot be said, and the way round.
    """
    for target in targets:
        for each in file_schemas:
            for misfit in _FOUND_BY[target](schema, each):
                message = f"{target} cannot say {misfit.change} of column {misfit.column!r}"
                raise PublishRefusedError(
                    f"{message}: {misfit.why}",
                    hint=_WAY_ROUND,
                    target=target,
                    change=misfit.change,
                    column=misfit.column,
                )


def _by_name(now: Schema, then: Schema) -> Iterator[_Misfit]:
    return _misfits(now.stored, then.stored, "", now)


def _by_id(now: Schema, then: Schema) -> Iterator[_Misfit]:
    """Find what Iceberg cannot say: it widens fewer types, and needs a member to see a struct."""
    fields = {id_of(each): (path, each.type) for path, each in _every_field(now.arrow, "")}
    for _, old in _every_field(then.arrow, ""):
        path, kind = fields.get(id_of(old), ("", old.type))
        if pa.types.is_struct(kind):
            if {id_of(each) for each in kind.fields}.isdisjoint(map(id_of, old.type.fields)):
                yield _Misfit(path, "the members", _NO_MEMBER)
        elif not parts_of(kind) and not _iceberg_reads(kind, old.type):
            why = f"files that are live have it as {old.type}"
            yield _Misfit(path, "the new type", why)


def _every_field(fields: Iterable[pa.Field], above: str) -> Iterator[tuple[str, pa.Field]]:
    for each in fields:
        path = f"{above}{each.name}"
        yield path, each
        yield from _every_field(parts_of(each.type), f"{path}.")


def _iceberg_reads(now: pa.DataType, then: pa.DataType) -> bool:
    if pa.types.is_decimal(now) and pa.types.is_decimal(then):
        return bool(now.scale == then.scale and now.precision >= then.precision)
    return now == then or (is_wider(now, then) and not pa.types.is_timestamp(now))


_FOUND_BY: Mapping[str, Callable[[Schema, Schema], Iterator[_Misfit]]] = {
    "delta": _by_name,
    "iceberg": _by_id,
}


def _misfits(
    now: Iterable[pa.Field], then: Iterable[pa.Field], above: str, schema: Schema
) -> Iterator[_Misfit]:
    by_id = {id_of(each): each for each in then}
    by_name = {each.name: id_of(each) for each in by_id.values()}
    for field in now:
        path, number = f"{above}{field.name}", id_of(field)
        old = by_id.get(number)
        if by_name.get(field.name, number) != number:
            why = "files that are live have another column under this name, which was dropped"
            yield _Misfit(path, "the name", why)
        elif old is None:
            note = schema.notes.get(number)
            if note is not None and note.initial is not None:
                why = "live files lack the column, so engines would read its rows as null"
                yield _Misfit(path, "the default", why)
        elif old.name != field.name:
            why = f"files that are live have it as {old.name!r}"
            yield _Misfit(path, "the new name", why)
        else:
            yield from _of_types(field.type, old.type, path, schema)


def _of_types(now: pa.DataType, then: pa.DataType, path: str, schema: Schema) -> Iterator[_Misfit]:
    inside = tuple(now.field(at) for at in range(now.num_fields))
    before = tuple(then.field(at) for at in range(then.num_fields))
    if not inside or not before:
        if now != then and not is_wider(now, then):
            yield _Misfit(path, "the new type", f"files that are live have it as {then}")
    elif pa.types.is_struct(now):
        if {id_of(each) for each in inside}.isdisjoint(map(id_of, before)):
            yield _Misfit(path, "the members", _NO_MEMBER)
        yield from _misfits(inside, before, f"{path}.", schema)
    else:
        for mine, theirs in zip(inside, before, strict=True):
            yield from _of_types(mine.type, theirs.type, f"{path}.{mine.name}", schema)
