"""DDL text to schemas: ``id bigint not null, tags array<string>``."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyarrow as pa

from plait.errors import SchemaError
from plait.model.schema import plain_type

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<quoted>`(?:[^`]|``)+`)
      | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<number>\d+)
      | (?P<sign>[<>(),:])
      | (?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
    )""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
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

    ``char(n)`` and ``varchar(n)`` are strings, of any length; comments are passed over.

    Raises:
        SchemaError: the text is not one, with the position.

    >>> parse_ddl("id bigint not null, amount decimal(10,2)").names
    ['id', 'amount']
    """
    if len(text) > _TEXT_MAX:
        message = f"a schema of {len(text)} characters"
        raise SchemaError(message, hint=f"at most {_TEXT_MAX}", text=text[:200])
    return pa.schema(_Parser(text).fields(end=""))


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    at: int


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._split()
        self._next = 0

    def _split(self) -> list[_Token]:
        tokens, at = [], 0
        rest = self._text.rstrip()
        while at < len(rest):
            match = _TOKEN.match(rest, at)
            if match is None or match.lastgroup is None:
                what = "a name or type"
                raise self._expected(what, at + len(rest[at:]) - len(rest[at:].lstrip()))
            kind = match.lastgroup
            word = match[kind]
            text = word[1:-1].replace("``", "`") if kind == "quoted" else word
            tokens.append(_Token(kind, text, match.start(kind)))
            at = match.end()
        tokens.append(_Token("end", "", len(self._text)))
        return tokens

    def _expected(self, what: str, at: int) -> SchemaError:
        message = f"cannot read the schema at character {at}: expected {what}"
        hint = "for example: id bigint not null, day date, tags array<string>"
        return SchemaError(message, hint=hint, text=self._text[:200], position=at)

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    def _take(self, expected: str, *kinds: str) -> str:
        token = self._token
        if token.kind not in kinds:
            raise self._expected(expected, token.at)
        self._next += 1
        return token.text

    def _found(self, text: str) -> bool:
        """Pass over a sign or a word, if it comes next."""
        token = self._token
        found = token.kind in ("sign", "word") and token.text.lower() == text
        self._next += found
        return found

    def _require(self, text: str) -> None:
        if not self._found(text):
            raise self._expected(repr(text), self._token.at)

    def fields(self, *, end: str, depth: int = 0) -> list[pa.Field]:
        """Read fields up to an end."""
        fields: dict[str, pa.Field] = {}
        while True:
            at = self._token.at
            name = self._take("a column name", "word", "quoted")
            if name.lower() in fields:
                what = f"one column called {name!r}, whatever its case"
                raise self._expected(what, at)
            self._found(":")
            kind = self.type(depth)
            fields[name.lower()] = pa.field(name, kind, not self._not_null())
            if not self._found(","):
                break
        if end:
            self._require(end)
        elif self._token.kind != "end":
            what = "a comma"
            raise self._expected(what, self._token.at)
        return list(fields.values())

    def _not_null(self) -> bool:
        found = self._found("not")
        if found:
            self._require("null")
        if self._found("comment"):
            self._take("a comment in quotes", "text")
        return found

    def type(self, depth: int) -> pa.DataType:
        """Read one type."""
        at = self._token.at
        if depth > _NESTING_MAX:
            what = "fewer nested types"
            raise self._expected(what, at)
        word = self._take("a type", "word").lower()
        match _ALIASES.get(word, word):
            case "array":
                self._require("<")
                kind = pa.list_(pa.field("element", self.type(depth + 1)))
                self._require(">")
            case "map":
                self._require("<")
                key = self.type(depth + 1)
                self._require(",")
                kind = pa.map_(key, self.type(depth + 1))
                self._require(">")
            case "struct":
                self._require("<")
                kind = pa.struct(self.fields(end=">", depth=depth + 1))
            case "decimal":
                kind = self._plain(self._decimal(), at)
            case "varchar" | "char":
                self._require("(")
                self._take("a length", "number")
                self._require(")")
                kind = pa.string()
            case plain:
                kind = self._plain(plain, at)
        return kind

    def _plain(self, name: str, at: int) -> pa.DataType:
        try:
            return plain_type(name)
        except ValueError as error:
            what = f"a type, found {name[:80]!r}"
            raise self._expected(what, at) from error

    def _decimal(self) -> str:
        precision, scale = "10", "0"
        if self._found("("):
            precision = self._take("a precision", "number")
            if self._found(","):
                scale = self._take("a scale", "number")
            self._require(")")
        return f"decimal({precision},{scale})"
