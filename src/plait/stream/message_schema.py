"""The form of the messages of a stream: one definition, which is published and which is obeyed.

``SCHEMA`` is the JSON Schema of ``docs/spec/messages.schema.json``, and a program writes that file
from here. ``misfit`` checks a message against the same rules, before anything is made of it: so
nobody behind ``messages.decode`` meets a value of another type, or a number without a bound. What
sends a message checks it too, since a message that no receiver takes would be waited for in vain.

It knows the few words of JSON Schema that stand here. Another word is an error when the module is
imported, so no rule can be published that nobody obeys.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from plait.errors import InvariantError

VERSION: Final = 1
"""Version of the messages; messages of other versions are ignored."""
START, END, STATUS, ACK = "START-COMMIT", "END-COMMIT", "WRITE-STATUS", "ACK-COMMIT"
HELLO, PROGRESS, FAREWELL = "HELLO", "PROGRESS", "FAREWELL"

NAME_MAX: Final = 1024
"""Maximum length of the name of a writer or of a source."""
OFFSET_MAX: Final = 64 << 10
"""Maximum length of one offset."""
ERROR_MAX: Final = 4096
"""Maximum length of the reason why a writer gave up."""
_LIFE_MAX: Final = 64
_PATH_MAX: Final = 16 << 10
_ENTRIES_MAX: Final = 100_000
_NUMBER_MAX: Final = (1 << 31) - 1
"""Maximum number of a turn or layout, and of what is counted once for each of them."""
_COUNT_MAX: Final = 1 << 50
"""Maximum count of rows and bytes; the sum over many writers still fits 64 bits."""
_HASH_MAX: Final = (1 << 64) - 1

Schema: TypeAlias = Mapping[str, Any]
Check: TypeAlias = Callable[[object], str]
"""Returns what is wrong with a value; an empty text if nothing is."""


def _object(properties: dict[str, Schema]) -> dict[str, Any]:
    """Return the schema of an object that has these members, and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/$defs/{name}"}


def _turn(*, reset: bool) -> dict[str, Any]:
    return _object(
        {
            "table": _ref("table"),
            "session": _ref("instant"),
            "number": _ref("number"),
            "instant": _ref("instant"),
            "operation": {"enum": ["append", "insert", "upsert"]},
            "schema_id": _ref("number"),
            "bucket_spec_id": _ref("number"),
            "decided": _ref("number_or_none"),
            "offsets": _ref("offsets"),
            "reset": {"const": reset},
            "lives": _ref("lives"),
            "revision": _ref("number"),
        }
    )


_DEFS: Final[dict[str, dict[str, Any]]] = {
    "table": {"type": "string", "pattern": "^[0-9a-f]{16,64}$"},
    "instant": {"type": "string", "pattern": "^[0-9]{17}-[0-9a-f]{16}$"},
    "instant_or_none": {"type": "string", "pattern": "^([0-9]{17}-[0-9a-f]{16})?$"},
    "name": {"type": "string", "maxLength": NAME_MAX},
    "life": {"type": "string", "minLength": 1, "maxLength": _LIFE_MAX},
    "path": {"type": "string", "maxLength": _PATH_MAX},
    "number": {"type": "integer", "minimum": 0, "maximum": _NUMBER_MAX},
    "number_or_none": {"type": "integer", "minimum": -1, "maximum": _NUMBER_MAX},
    "count": {"type": "integer", "minimum": 0, "maximum": _COUNT_MAX},
    "offsets": {
        "type": "object",
        "propertyNames": {"maxLength": NAME_MAX},
        "additionalProperties": {"type": "string", "maxLength": OFFSET_MAX},
        "maxProperties": _ENTRIES_MAX,
    },
    "lives": {
        "type": "object",
        "propertyNames": {"maxLength": NAME_MAX},
        "additionalProperties": _ref("life"),
        "maxProperties": _ENTRIES_MAX,
    },
    START: _turn(reset=True),
    END: _turn(reset=False),
    STATUS: _object(
        {
            "table": _ref("table"),
            "session": _ref("instant"),
            "writer": _ref("name"),
            "life": _ref("life"),
            "number": _ref("number"),
            "starts": _ref("offsets"),
            "ends": _ref("offsets"),
            "rows": _ref("count"),
            "hash": {"type": "integer", "minimum": 0, "maximum": _HASH_MAX},
            "flushes": _ref("number"),
            "runs": {"type": "array", "items": _ref("path")},
            "status": {"type": "string", "pattern": "^[A-Za-z0-9+/]*={0,2}$"},
            "error": {"type": "string", "maxLength": ERROR_MAX},
            "file": _ref("path"),
            "file_hash": {"type": "string", "pattern": "^([0-9a-f]{32})?$"},
        }
    ),
    ACK: _object(
        {
            "table": _ref("table"),
            "session": _ref("instant"),
            "decided": _ref("number_or_none"),
            "offsets": _ref("offsets"),
        }
    ),
    HELLO: _object(
        {
            "table": _ref("table"),
            "writer": _ref("name"),
            "life": _ref("life"),
            "session": _ref("instant_or_none"),
            "number": _ref("number_or_none"),
        }
    ),
    PROGRESS: _object(
        {
            "table": _ref("table"),
            "session": _ref("instant"),
            "writer": _ref("name"),
            "life": _ref("life"),
            "number": _ref("number"),
            "rows": _ref("count"),
            "bytes": _ref("count"),
            "moved": {"type": "boolean"},
            "urgent": {"type": "boolean"},
        }
    ),
    FAREWELL: _object(
        {"table": _ref("table"), "writer": _ref("name"), "life": _ref("life")},
    ),
}
KINDS: Final = (START, END, STATUS, ACK, HELLO, PROGRESS, FAREWELL)

SCHEMA: Final[dict[str, Any]] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "A message between a coordinator and the writers of a stream",
    **_object(
        {
            "version": {"const": VERSION},
            "kind": {"enum": list(KINDS)},
            "body": {"type": "object"},
            "check": {"type": "string", "pattern": "^[0-9a-f]{16}$"},
        }
    ),
    "allOf": [
        {
            "if": {"properties": {"kind": {"const": kind}}},
            "then": {"properties": {"body": _ref(kind)}},
        }
        for kind in KINDS
    ],
    "$defs": _DEFS,
}
"""The published schema."""


def misfit(message: object) -> str:
    """Say how a parsed message breaks the schema; empty if it does not.

    >>> misfit({"version": 1, "kind": "FAREWELL", "body": {}, "check": "0" * 16})
    "body: 'life' is missing"
    """
    wrong = _ENVELOPE(message)
    if wrong or not isinstance(message, dict):
        return wrong
    wrong = _BODIES[message["kind"]](message["body"])
    return wrong and f"body: {wrong}"


def body_misfit(kind: str, body: object) -> str:
    """Say how the body of a message breaks the schema of its kind; empty if it does not."""
    return _BODIES[kind](body)


# --- the checks, each made once of its schema ----------------------------------------------------


def _checks(schema: Schema) -> Check:
    """Make the check of a schema: each word has a check of its own."""
    name = schema.get("$ref")
    if name is not None:
        return _checks(_DEFS[name.removeprefix("#/$defs/")])
    unknown = set(schema) - set(_WORDS) - _NOTES
    if unknown:
        raise InvariantError(f"nothing checks {sorted(unknown)} of the schema of messages")
    made = [_WORDS[word](schema) for word in _WORDS if word in schema]

    def check(value: object) -> str:
        return next((wrong for each in made if (wrong := each(value))), "")

    return check


_NOTES: Final = frozenset(
    {"additionalProperties", "minimum", "minLength", "propertyNames", "required"}
)
"""Words that the check of another word obeys as well."""
_TYPES: Final = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}


def _type(schema: Schema) -> Check:
    name = schema["type"]
    kind = _TYPES[name]

    def check(value: object) -> str:
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            return f"{_shown(value)} is not of type {name}"
        if isinstance(value, str) and not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:
                return "a text is not of whole characters"
        return ""

    return check


def _const(schema: Schema) -> Check:
    wanted = schema["const"]
    return lambda value: (
        ""
        if type(value) is type(wanted) and value == wanted
        else f"{_shown(value)} is not {wanted!r}"
    )


def _enum(schema: Schema) -> Check:
    known = frozenset(schema["enum"])
    return lambda value: (
        "" if isinstance(value, str) and value in known else f"{_shown(value)} is not known"
    )


def _number(schema: Schema) -> Check:
    least, most = schema["minimum"], schema["maximum"]
    return lambda value: "" if least <= value <= most else f"{_shown(value)} is out of range"


def _length(schema: Schema) -> Check:
    least, most = schema.get("minLength", 0), schema["maxLength"]

    def check(value: object) -> str:
        size = len(value) if isinstance(value, str) else -1
        return "" if least <= size <= most else f"a text has {size} characters"

    return check


def _pattern(schema: Schema) -> Check:
    matcher = re.compile(schema["pattern"].removeprefix("^").removesuffix("$"))
    return lambda value: "" if matcher.fullmatch(value) else f"{_shown(value)} has another form"


def _members(schema: Schema) -> Check:
    """Check an object of known members: all are required, and no others are allowed."""
    if "additionalProperties" not in schema:
        return lambda _: ""
    checks = {name: _checks(each) for name, each in schema["properties"].items()}

    def check(value: object) -> str:
        if not isinstance(value, dict) or value.keys() != checks.keys():
            return _other_members(value, checks)
        return next(
            (f"{n}: {wrong}" for n, each in checks.items() if (wrong := each(value[n]))), ""
        )

    return check


def _other_members(value: object, known: Mapping[str, Check]) -> str:
    found = set(value) if isinstance(value, dict) else set()
    missing = sorted(known.keys() - found)
    return (
        f"{missing[0]!r} is missing"
        if missing
        else f"{_shown(min(found - known.keys()))} is unknown"
    )


def _entries(schema: Schema) -> Check:
    """Check an object of any members: how many there are, their names and their values."""
    most = schema["maxProperties"]
    named, valued = (
        _checks({"type": "string", **schema["propertyNames"]}),
        _checks(schema["additionalProperties"]),
    )

    def wrongs(value: Mapping[str, object]) -> Iterator[str]:
        for name, each in value.items():
            yield named(name) or valued(each)

    def check(value: object) -> str:
        if not isinstance(value, dict) or len(value) > most:
            return f"there are more than {most}"
        return next(filter(None, wrongs(value)), "")

    return check


def _items(schema: Schema) -> Check:
    inner = _checks(schema["items"])

    def check(value: object) -> str:
        return next(filter(None, map(inner, value if isinstance(value, list) else ())), "")

    return check


def _shown(value: object) -> str:
    return f"{value!r:.80}" if not isinstance(value, str) else repr(value[:80])


_WORDS: Final[Mapping[str, Callable[[Schema], Check]]] = {
    "type": _type,
    "const": _const,
    "enum": _enum,
    "maximum": _number,
    "maxLength": _length,
    "pattern": _pattern,
    "properties": _members,
    "maxProperties": _entries,
    "items": _items,
}
"""By word, the function that makes its check. The type comes first: other checks rely on it."""
_BODIES: Final = {kind: _checks(_DEFS[kind]) for kind in KINDS}
_ENVELOPE: Final = _checks(
    {key: SCHEMA[key] for key in ("type", "properties", "required", "additionalProperties")}
)
