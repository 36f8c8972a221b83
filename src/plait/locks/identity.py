"""What names a table to a service that many tables share."""

from __future__ import annotations

import hashlib
import json
import re

from plait.errors import CorruptMetadataError, UnsupportedFeatureError
from plait.storage.port import Store

_TABLE = ".meta/table.json"
IDENTITY_BYTES_MAX = 1 << 16
FORMAT_VERSION = 1
_ID = re.compile(r"[0-9a-f]{16,64}", re.ASCII)


def table_name(store: Store) -> str:
    """Name a table by its identity, however its URI is spelled; by its place before it has one.

    Raises:
        CorruptMetadataError: the identity cannot be read; a guess could split the table's writers.
    """
    body = store.find(_TABLE, size_max=IDENTITY_BYTES_MAX)
    return place_name(store) if body is None else f"id-{identity_of(body)}"


def place_name(store: Store) -> str:
    """Name the place of a table, whether there is one or not."""
    return f"place-{hashlib.sha256(store.address.uri.encode()).hexdigest()[:32]}"


def identity_of(body: bytes) -> str:
    """Read the identity in ``table.json``; raise CorruptMetadataError if there is none."""
    try:
        identity = str(json.loads(body)["id"])
    except (ValueError, TypeError, KeyError, RecursionError):
        identity = ""
    if not _ID.fullmatch(identity):
        raise CorruptMetadataError(
            f"{_TABLE} does not contain the table's identity",
            hint="restore the file from a backup; all writers must read the same file",
            path=_TABLE,
            expected="an id",
            found=body[:80].decode("utf-8", "replace"),
        )
    return identity


def require_identity(store: Store) -> str:
    """Return the identity in ``table.json``: it is written first, so a table with decisions has it.

    Raises:
        CorruptMetadataError: it is missing or damaged.
        UnsupportedFeatureError: the format of the table is newer.
    """
    body = store.find(_TABLE, size_max=IDENTITY_BYTES_MAX)
    if body is None:
        hint = "restore it from a backup"
        raise CorruptMetadataError(
            f"{_TABLE} is missing", hint=hint, path=_TABLE, expected="an identity", found="none"
        )
    identity = identity_of(body)
    written = json.loads(body).get("format")
    if written != FORMAT_VERSION:
        message = f"{_TABLE} has format {written!r:.40}, but this Plait supports {FORMAT_VERSION}"
        raise UnsupportedFeatureError(
            message, hint="upgrade plait", features=[f"format {written!r:.40}"], path=_TABLE
        )
    return identity
    return identity
