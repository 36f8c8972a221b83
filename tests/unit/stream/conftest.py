"""Groups of writers of one stream, each with a table of its own."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from plait import Table
from plait.ports import Clock
from tests.support.stream_group import PROPERTIES, Group

_NAMES = itertools.count()
Make = Callable[..., Group]


@pytest.fixture
def make() -> Iterator[Make]:
    """Make groups; they are closed in the end, and nothing is left pending."""
    made: list[Group] = []

    def group(
        *names: str,
        keyed: bool = False,
        operation: str | None = None,
        clock: Clock | None = None,
    ) -> Group:
        table = Table.create(
            f"memory://stream-{next(_NAMES)}",
            "id bigint, note string",
            record_key=["id"] if keyed else [],
            buckets=4 if keyed else None,
            properties=PROPERTIES,
        )
        if clock is not None:
            ports = replace(table._handle.ports, clock=clock)
            table = Table(replace(table._handle, ports=ports))
        made.append(Group(table, operation or ("upsert" if keyed else "append")))
        made[-1].join(*names)
        return made[-1]

    yield group
    for each in made:
        each.close()
        assert each.table.inspect.timeline().pending == ()
        report = each.table.check.verify()
        assert (report.problems, report.notes) == ((), ()), report.to_dict()
        assert each.table.stream("app").audit().problems == ()
