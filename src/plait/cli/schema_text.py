"""A schema on the command line: DDL text, or the name of a file that contains it."""

from __future__ import annotations

from pathlib import Path

import click


def schema_text(text: str) -> str:
    """Return the DDL that a text stands for; a usage error if its file cannot be read."""
    if not text.startswith("@"):
        return text
    try:
        return Path(text[1:]).read_text(encoding="utf-8")
    except OSError as error:
        message = f"{text}: {error.strerror}"
        raise click.UsageError(message) from error
