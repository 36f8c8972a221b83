"""A schema on the command line: DDL text, or the name of a file that contains it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import click


def schema_text(text: str) -> str:
    """Return the DDL that a text stands for; a usage error if its file cannot be read."""
    if not text.startswith("@"):
        return text
    try:
        return Path(text[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        message = f"{text}: {getattr(error, 'strerror', 'it is not UTF-8')}"
        raise click.UsageError(message) from error


def layout_text(layout: Mapping[str, object]) -> str:
    """Write the layout of a table, as decisions and ``describe`` have it.

    >>> spec = {"id": 0, "key": ["id"], "count": 8}
    >>> layout = {"partition_by": ["day"], "bucket_spec": spec, "ordering": None}
    >>> layout_text({**layout, "table_type": "mor"})
    'mor; 8 buckets by id; partitioned by day; no ordering'
    """
    spec, places = layout["bucket_spec"], layout["partition_by"]
    buckets = "no buckets"
    if isinstance(spec, Mapping) and spec["key"]:
        buckets = f"{spec['count']} buckets by {', '.join(spec.get('by', spec['key']))}"
    named = isinstance(places, Sequence) and ", ".join(map(str, places))
    partitions = f"partitioned by {named}" if named else "not partitioned"
    ordering = layout["ordering"]
    order = "no ordering" if ordering is None else f"ordered by {ordering}"
    return f"{layout['table_type']}; {buckets}; {partitions}; {order}"
