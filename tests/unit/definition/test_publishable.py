"""What a published format cannot say of live files is refused (INV-17): also in older tables.

Schemas of older releases may give a field another name in files than the schema before did.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from plait import PublishRefusedError
from plait.definition.publishable import require_publishable
from plait.model.schema import Schema

INT = "int"


def schema(**fields: tuple[int, object]) -> Schema:
    """Return a schema; each column with its id and its type as metadata has it."""
    found = [
        {"id": number, "name": name, "type": kind, "nullable": True}
        for name, (number, kind) in fields.items()
    ]
    return Schema.from_dict({"id": 1, "fields": found})


def struct(**members: int) -> Mapping[str, object]:
    parts = [
        {"id": number, "name": name, "type": INT, "nullable": True}
        for name, number in members.items()
    ]
    return {"struct": parts}


@pytest.mark.parametrize(
    ("now", "then", "said"),
    [
        (schema(a=(1, INT)), schema(b=(1, INT)), "the new name"),
        (schema(a=(2, INT)), schema(a=(1, INT)), "the name"),
        (schema(s=(1, struct(x=2))), schema(s=(1, struct(y=2))), "the new name"),
        (schema(s=(1, struct(x=3, y=2))), schema(s=(1, struct(x=4, y=2))), "the name"),
        (schema(s=(1, struct(x=3))), schema(s=(1, struct(y=2))), "the members"),
        (schema(a=(1, INT)), schema(a=(1, "bigint")), "the new type"),
    ],
)
def test_what_engines_would_read_wrong_is_refused(now: Schema, then: Schema, said: str) -> None:
    require_publishable(["delta"], now, [now])
    with pytest.raises(PublishRefusedError, match=said) as refused:
        require_publishable(["delta"], now, [now, then])
    assert (refused.value.target, refused.value.change) == ("delta", said)


def test_what_every_engine_finds_is_let_through() -> None:
    then = schema(a=(1, INT), gone=(2, INT), s=(3, struct(x=4)))
    now = schema(new=(7, INT), s=(3, struct(x=4, y=8)), a=(1, "bigint"))
    require_publishable(["delta"], now, [then, now])
