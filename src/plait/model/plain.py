"""How reports become JSON: one rule for all of them.

A library does not do it: msgspec and cattrs write the fields of a dataclass, and a report also
shows what it computes from them, under the names and in the order that scripts know.

What stands on storage is not written by this rule. A decision, a schema, or the record of a sink is
read by clients of other versions, and may have been damaged or forged. Its ``to_dict`` and its
``from_dict`` stand side by side and name each key, so that nobody changes bytes by renaming a
field, and each refuses what its values cannot be. Messages of a stream have a published schema, by
which ``stream/messages.py`` writes and reads them all.
"""

from __future__ import annotations

import datetime as dt
import enum
import functools
import operator
from collections.abc import Callable, Mapping
from typing import ClassVar, Final

_TIME: Final = "_ms"
_PLAIN: Final = frozenset({type(None), bool, int, float, str})


def iso(ms: int) -> str:
    """Write ms since the epoch as ISO-8601, UTC.

    >>> iso(0)
    '1970-01-01T00:00:00.000Z'
    """
    moment = dt.datetime.fromtimestamp(ms / 1000, tz=dt.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{ms % 1000:03d}Z"


class Plain:
    """A frozen dataclass that JSON can show.

    ``KEYS`` names the keys in their order, with blanks between them. Without it, they are the
    fields. ``bytes=size_bytes`` takes a key from another attribute, and ``kind=order.kind`` from a
    part of one; where a part is None, so is the key. A key without the unit of its attribute, as
    in ``since=since_ms``, is a time, and shown as ISO-8601.
    """

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, object]]
    KEYS: ClassVar[str] = ""

    def to_dict(self) -> dict[str, object]:
        """Return it as plain values."""
        pairs = map(_key_and_reader, self.KEYS.split() or self.__dataclass_fields__)
        return {key: to_plain(read(self)) for key, read in pairs}


def to_plain(value: object) -> object:
    """Return a value as JSON has it.

    A value that has a text of its own, as an instant or the partition of a topic, becomes that.

    >>> to_plain({"a": (1, "x", {"b": None})})
    {'a': [1, 'x', {'b': None}]}
    """
    if type(value) in _PLAIN:
        return value
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Mapping):
        return {key: to_plain(each) for key, each in value.items()}
    if isinstance(value, (tuple, list)) and type(value).__str__ is object.__str__:
        return [to_plain(each) for each in value]
    return value.to_dict() if hasattr(value, "to_dict") else str(value)


@functools.cache
def _key_and_reader(text: str) -> tuple[str, Callable[[object], object]]:
    """Return one of the names in ``KEYS`` as the key, and the function that finds its value."""
    key, _, path = text.partition("=")
    read = operator.attrgetter(path or key)
    if "." in path:
        first, _, rest = path.partition(".")
        whole, part = operator.attrgetter(first), operator.attrgetter(rest)
        return key, lambda value: None if whole(value) is None else part(whole(value))
    if path.endswith(_TIME) and not key.endswith(_TIME):
        return key, lambda value: None if read(value) is None else iso(read(value))
    return key, read
