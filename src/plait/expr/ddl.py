"""DDL text to schemas: ``id bigint not null, tags array<string>``."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyarrow as pa

from plait.errors import SchemaError
from plait.model.schema import plain_type

_TOKEN = re.compile(r"\s*(?:(`(?:[^`]|``)+`)|([A-Za-z_][A-Za-z0-9_]*)|(\d+)|([<>(),:])|('[^']*'))")
_ALIASES = {
    "long": "bigint",
    "integer": "int",
    "short": "smallint",
    "byte": "tinyint",
    "bool": "boolean",
    "real": "float",
    "timestamp_ltz": "timestamp",
    "dec": "decimal",
    "numeric": "decimal",
}
_NESTING_MAX = 32
_TEXT_MAX = 1 << 20


def parse_ddl(text: str) -> pa.Schema:
    """Read column definitions as Spark writes them.

    Raises:
        SchemaError: the text is not one, with the position.

    >>> parse_ddl("id bigint not null, amount decimal(10,2)").names
    ['id', 'amount']
    """
    parser = _Parser(text)
    fields = parser.fields(",", end="")
    return pa.schema(fields)


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    at: int
    quoted: bool


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._split(text[:_TEXT_MAX])
        self._next = 0

    def _split(self, text: str) -> list[_Token]:
        tokens, at = [], 0
        rest = text.rstrip()
        while at < len(rest):
            match = _TOKEN.match(rest, at)
            if match is None:
                msg = "a name or type"
                raise self._expected(msg, at)
            quoted = match[1] is not None
            word = match[1][1:-1].replace("``", "`") if quoted else match[0].strip()
            tokens.append(
                _Token(word, match.start() + len(match[0]) - len(match[0].lstrip()), quoted)
            )
            at = match.end()
        return tokens

    def _expected(self, what: str, at: int) -> SchemaError:
        message = f"cannot read the schema at character {at}: expected {what}"
        hint = "for example: id bigint not null, day date, tags array<string>"
        return SchemaError(message, hint=hint, text=self._text[:200], position=at)

    def _peek(self) -> str:
        return self._tokens[self._next].text.lower() if self._next < len(self._tokens) else ""

    def _at(self) -> int:
        done = self._next >= len(self._tokens)
        return len(self._text) if done else self._tokens[self._next].at

    def _take(self, expected: str) -> str:
        if self._next >= len(self._tokens):
            raise self._expected(expected, len(self._text))
        self._next += 1
        return self._tokens[self._next - 1].text

    def _require(self, text: str) -> None:
        if self._peek() != text:
            raise self._expected(repr(text), self._at())
        self._next += 1

    def fields(self, separator: str, *, end: str, depth: int = 0) -> list[pa.Field]:
        """Read fields up to an end."""
        fields = []
        while True:
            name = self._take("a column name")
            if self._peek() == ":":
                self._next += 1
            kind = self.type(depth)
            nullable = not self._not_null()
            fields.append(pa.field(name, kind, nullable))
            if self._peek() != separator:
                break
            self._next += 1
        if self._peek() != end:
            raise self._expected(repr(end) if end else "a comma", self._at())
        return fields

    def _not_null(self) -> bool:
        found = self._peek() == "not"
        if found:
            self._next += 1
            self._require("null")
        if self._peek() == "comment":
            self._next += 1
            self._take("a comment")
        return found

    def type(self, depth: int) -> pa.DataType:
        """Read one type."""
        if depth > _NESTING_MAX:
            msg = "fewer nested types"
            raise self._expected(msg, self._at())
        at = self._at()
        word = self._take("a type").lower()
        word = _ALIASES.get(word, word)
        if word == "array":
            self._require("<")
            item = self.type(depth + 1)
            self._require(">")
            return pa.list_(pa.field("element", item))
        if word == "map":
            self._require("<")
            key = self.type(depth + 1)
            self._require(",")
            value = self.type(depth + 1)
            self._require(">")
            return pa.map_(key, value)
        if word == "struct":
            self._require("<")
            fields = self.fields(",", end=">", depth=depth + 1)
            self._require(">")
            return pa.struct(fields)
        if word == "decimal":
            word = self._decimal()
        if word in ("varchar", "char"):
            self._require("(")
            self._take("a length")
            self._require(")")
            word = "string"
        try:
            return plain_type(word)
        except ValueError as error:
            msg = f"a type, found {word!r}"
            raise self._expected(msg, at) from error

    def _decimal(self) -> str:
        precision, scale = "10", "0"
        if self._peek() == "(":
            self._next += 1
            precision = self._take("a precision")
            if self._peek() == ",":
                self._next += 1
                scale = self._take("a scale")
            self._require(")")
        return f"decimal({precision},{scale})"
