"""JSON objects for map columns, rewritten as arrays of entries.

Arrow's reader takes no object with names that it does not know. So the text ``{"a": 1}`` of a map
becomes ``[{"key":"a","value":1}]`` before it is read. All other text stays as it is: whether it is
valid JSON and fits its column is left to the reader.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import pyarrow as pa

_T = pa.types
KEY: Final = "key"
VALUE: Final = "value"
_SPACE: Final = re.compile(rb"[ \t\r\n]*")
_STRING: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
"""Pattern of a JSON string. It never backtracks, so unterminated and long texts stay cheap."""
_SCALAR: Final = re.compile(rb'[^ \t\r\n,:"\[\]{}]+')
_BRACKET: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[\[{]|[\]}]|"', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Members:
    """An object whose members are the fields of a struct; only those with a map inside count."""

    inside: Mapping[str, Shape]


@dataclass(frozen=True, slots=True)
class Elements:
    """An array whose elements have a map inside."""

    inside: Shape


@dataclass(frozen=True, slots=True)
class Entries:
    """An object that becomes an array of entries."""

    inside: Shape | None
    """Where its values have a map inside."""


Shape: TypeAlias = Members | Elements | Entries
"""Where the maps of a type are."""


def shape_of(kind: pa.DataType) -> Shape | None:
    """Return where the maps of a type are; None if it has none.

    >>> shape_of(pa.list_(pa.map_(pa.string(), pa.int64())))
    Elements(inside=Entries(inside=None))
    """
    if _T.is_map(kind):
        return Entries(shape_of(kind.item_type))
    if _T.is_list(kind):
        inside = shape_of(kind.value_type)
        return None if inside is None else Elements(inside)
    if _T.is_struct(kind):
        fields = {each.name: shape_of(each.type) for each in kind.fields}
        known = {name: inside for name, inside in fields.items() if inside is not None}
        return Members(known) if known else None
    return None


def with_entries(value: bytes, shape: Shape) -> bytes:
    """Rewrite the maps of one JSON value.

    Raises:
        ValueError: the value for a map is neither an object nor null, or has a key twice; or the
            text is not one JSON value.

    >>> with_entries(b'{"m": {"a": 1}}', Members({"m": Entries(None)}))
    b'{"m": [{"key":"a","value": 1}]}'
    """
    return _Rewriting(value).run(shape)


class _Rewriting:
    """Passes over a text from left to right, and copies it with other brackets around maps."""

    def __init__(self, text: bytes) -> None:
        self._text, self._at = text, 0
        self._out: list[bytes] = []
        self._copied = 0

    def run(self, shape: Shape) -> bytes:
        self._value(shape)
        if self._peek():
            raise ValueError("the value holds several JSON objects")
        self._insert(b"")
        return b"".join(self._out)

    def _value(self, shape: Shape | None) -> None:
        head = self._peek()
        if isinstance(shape, Members) and head == b"{":
            for name in self._members():
                self._value(shape.inside.get(_text(name)))
        elif isinstance(shape, Elements) and head == b"[":
            for _ in self._elements():
                self._value(shape.inside)
        elif isinstance(shape, Entries) and head == b"{":
            self._entries(shape)
        elif isinstance(shape, Entries) and not self._text.startswith(b"null", self._at):
            raise ValueError("the value for a map is not a JSON object")
        else:
            self._skip(head)

    def _entries(self, shape: Entries) -> None:
        self._replace(b"{", b"[")
        keys: set[str] = set()
        while self._peek() != b"}" or keys:
            self._peek()
            self._insert(b'{"key":')
            key = _text(self._match(_STRING))
            if key in keys:
                raise ValueError(f"a map has the key {key[:80]!r} twice")
            keys.add(key)
            self._replace(b":", b',"value":')
            self._value(shape.inside)
            self._insert(b"}")
            if self._peek() != b",":
                break
            self._at += 1
        self._replace(b"}", b"]")

    def _members(self) -> Iterator[bytes]:
        """Pass over an object; yield each name where the caller is to pass over its value."""
        for _ in self._elements(b"{", b"}"):
            self._peek()
            name = self._match(_STRING)
            self._take(b":")
            yield name

    def _elements(self, begin: bytes = b"[", end: bytes = b"]") -> Iterator[None]:
        """Pass over an array; yield where the caller is to pass over an element."""
        self._take(begin)
        if self._peek() == end:
            self._at += 1
            return
        while True:
            yield
            if self._peek() != b",":
                break
            self._at += 1
        self._take(end)

    def _skip(self, head: bytes) -> None:
        """Pass over a value without maps."""
        if head not in (b"{", b"["):
            self._match(_STRING if head == b'"' else _SCALAR)
            return
        depth = 0
        for found in _BRACKET.finditer(self._text, self._at):
            token = found[0]
            if token == b'"':
                break
            depth += (token in b"[{") - (token in b"]}")
            if not depth:
                self._at = found.end()
                return
        raise _malformed()

    def _peek(self) -> bytes:
        """Pass over space; return the next byte, empty at the end."""
        space = _SPACE.match(self._text, self._at)
        self._at = self._at if space is None else space.end()
        return self._text[self._at : self._at + 1]

    def _take(self, token: bytes) -> None:
        if self._peek() != token:
            raise _malformed()
        self._at += 1

    def _match(self, pattern: re.Pattern[bytes]) -> bytes:
        found = pattern.match(self._text, self._at)
        if found is None:
            raise _malformed()
        self._at = found.end()
        return found[0]

    def _replace(self, token: bytes, other: bytes) -> None:
        """Pass over a token, and write another one in its place."""
        self._take(token)
        self._out += [self._text[self._copied : self._at - 1], other]
        self._copied = self._at

    def _insert(self, text: bytes) -> None:
        self._out += [self._text[self._copied : self._at], text]
        self._copied = self._at


def _text(token: bytes) -> str:
    """Return the text of a JSON string."""
    text: str = json.loads(token.decode())
    return text


def _malformed() -> ValueError:
    return ValueError("the value is not valid JSON")
