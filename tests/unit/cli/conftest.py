"""Running ``tablectl`` in this process."""

from __future__ import annotations

import io
import json
import shutil
import threading
from dataclasses import dataclass
from functools import partial

import pytest

from plait import Table
from plait.cli.main import main
from plait.cli.render import Streams
from tests.support import build
from tests.support.build import LITTLE

SCHEMA = "id bigint, day string, x double"
rows = partial(build.rows, day="a", x=1.0)


class Pipe(io.StringIO):
    """A stream without what threads log to it that were there before: of other tests."""

    def __init__(self, text: str = "") -> None:
        super().__init__(text)
        self._others = {t.ident for t in threading.enumerate()} - {threading.get_ident()}

    def write(self, text: str) -> int:
        return len(text) if threading.get_ident() in self._others else super().write(text)


class Terminal(Pipe):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@dataclass(frozen=True)
class Ran:
    """What a call of ``tablectl`` came to."""

    code: int
    out: str
    err: str

    @property
    def data(self):
        """The ``data`` of the JSON document on stdout."""
        return json.loads(self.out)["data"]

    @property
    def error(self):
        """The ``error`` of the JSON document on stderr."""
        return json.loads(self.err)["error"]


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """The table that tests have copies of, in a directory that nothing writes to."""
    uri = str(tmp_path_factory.mktemp("made") / "t")
    table = Table.create(
        uri, SCHEMA, record_key=["id"], partition_by=["day"], ordering="x", properties=LITTLE
    )
    table.upsert(rows(1, 2, 3))
    table.upsert(rows(1, 4, x=2.0), commit_id="second")
    return uri


@pytest.fixture(name="table")
def table_fixture(made, tmp_path):
    """A partitioned table with two commits."""
    return shutil.copytree(made, str(tmp_path / "t"))


def tablectl(*arguments: object, answer: str | None = None) -> Ran:
    """Run a command; with an ``answer`` at a terminal, else in a pipe."""
    stdin, out, err = Pipe(), Pipe(), Pipe()
    if answer is not None:
        stdin, err = Terminal(answer), Terminal()
    code = main([str(argument) for argument in arguments], Streams(stdin, out, err))
    return Ran(code, out.getvalue(), err.getvalue())


@pytest.fixture(name="tablectl")
def tablectl_fixture():
    """Run commands of ``tablectl``."""
    return tablectl
