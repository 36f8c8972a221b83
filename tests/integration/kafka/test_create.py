"""A sink that creates its table: from a schema, or from the first records."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from plait import SchemaError, Table, TableNotFoundError
from plait.cli.main import main
from plait.cli.render import Streams
from plait.kafka.inference import infer_schema
from plait.model.schema import type_name
from tests.integration.kafka.conftest import WAIT_S, Events

pytestmark = pytest.mark.kafka


def test_a_schema_is_inferred_from_the_first_records(make_events: Callable[..., Events]) -> None:
    events = make_events(2)
    events.produce({"id": n, "x": n / 2, "at": "2026-01-31T12:00:00Z"} for n in range(50))
    found = infer_schema(events.clients, [events.name])
    assert {field.name: type_name(field.type) for field in found} == {
        "id": "bigint",
        "x": "double",
        "at": "timestamp",
    }


@pytest.mark.parametrize("rows", [[], [b"[1]"], [b'{"a": null}'], [b'{"a": 1}', b'{"a": "x"}']])
def test_what_has_no_schema_is_refused(
    make_events: Callable[..., Events], rows: list[bytes]
) -> None:
    events = make_events(1)
    events.produce(rows)
    with pytest.raises(SchemaError, match="--create"):
        infer_schema(events.clients, [events.name])


def _count(uri: str) -> int:
    """Return how many rows a table has; 0 before its first decision is there."""
    try:
        return Table.open(uri).scan().count()
    except TableNotFoundError:
        return 0


def test_processes_that_create_their_table_at_once_agree(
    make_events: Callable[..., Events], tmp_path: Path
) -> None:
    events, uri = make_events(2), str(tmp_path / "t")
    events.produce({"id": n, "note": "a"} for n in range(100))
    line = [
        sys.executable, "-m", "plait.cli", "sink", "kafka", uri, "--topic", events.name,
        "--bootstrap", events.kafka.bootstrap, "--create", "infer", "--key", "id",
        "--interval", "0.3",
    ]  # fmt: skip
    sinks = [subprocess.Popen(line, stdout=subprocess.DEVNULL) for _ in range(2)]
    try:
        deadline = time.monotonic() + 2 * WAIT_S
        while _count(uri) < 100:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        for each in sinks:
            each.send_signal(signal.SIGTERM)
        assert [each.wait(WAIT_S) for each in sinks] == [0, 0]
    finally:
        for each in sinks:
            each.kill()
            each.wait()
    assert Table.open(uri)._handle.cache.known().table.spec.key == ("id",)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        (["--include", "key=absent"], 2),
        (["--format", "raw"], 2),
        (["--format", "avro", "--registry", "ftp://x"], 2),
        (["--client", "no.such.setting=1"], 2),
        (["--metrics", "99999"], 2),
        (["--dead-letters", "absent"], 3),
    ],
)
def test_no_table_is_created_for_a_sink_that_cannot_work(
    make_events: Callable[..., Events],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changes: list[str],
    code: int,
) -> None:
    events, uri = make_events(1), tmp_path / "t"
    line = [
        "sink", "kafka", str(uri), "--topic", events.name, "--bootstrap", events.kafka.bootstrap,
        "--create", "id bigint, note string", *changes,
    ]  # fmt: skip
    monkeypatch.setattr("plait.kafka.client._LOOKS", 2)
    monkeypatch.setattr("signal.signal", lambda *_: None)  # the handlers are those of pytest
    assert main(line, Streams(io.StringIO(), io.StringIO(), io.StringIO())) == code
    assert not uri.exists()
    assert events.clients.find_topics([f"{events.name}-control"]) == {}
