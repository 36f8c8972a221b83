"""Hints of errors in the words of the command line: the library gives them in those of Python."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

COMMANDS: Final[Mapping[str, str]] = {
    "Catalog(uri).create_table": "tablectl create URI --name NAMESPACE.TABLE",
    "Catalog.create": "tablectl namespace URI NAME",
    "Catalog.create_namespace": "tablectl namespace URI NAME",
    "Catalog.tables": "tablectl list URI",
    "Catalog.dropped": "tablectl list URI --dropped",
    "Table.create": "tablectl create URI --schema ...",
    "Table.inspect.history": "tablectl history URI",
    "Table.index.create": "tablectl index build URI",
    "Table.index.build": "tablectl index build URI",
    "Table.layout.cancel": "tablectl repush URI --cancel",
    "Table.versions.replay": "tablectl replay URI",
    "Table.alter.contract": "tablectl set URI contract.PART=VALUE",
}
"""What does on the command line what a call of Python does."""
_CALL = re.compile(r"\b((?:Catalog(?:\(uri\))?|Table)\.[a-z_.]+[a-z])(?:\([a-z, ]*\))?")
_ARGUMENT = re.compile(r"\b(if_not_exists|dry_run|record_key|version|as_of|savepoint)=([^ ,;]*)")


def in_commands(hint: str) -> str:
    """Return a hint with commands for calls, and options for arguments, where there are some.

    >>> in_commands("see Table.inspect.history()"), in_commands("pass if_not_exists=True")
    ('see `tablectl history URI`', 'pass --if-not-exists')
    """
    hint = _CALL.sub(lambda m: f"`{COMMANDS[m[1]]}`" if m[1] in COMMANDS else m[0], hint)
    return _ARGUMENT.sub(lambda m: f"--{m[1].replace('_', '-')}", hint)
