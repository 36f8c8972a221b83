"""``tablectl sink``: options from files, and the status of a sink."""

from __future__ import annotations

from pathlib import Path

import pytest

from plait import Table


@pytest.fixture
def sink(tmp_path: Path) -> str:
    uri = str(tmp_path / "t")
    table = Table.create(uri, "id bigint")
    table.stream("events").seek({"events/0": "3@idA", "events/1": "5@idA"}, after=None)
    return uri


def test_the_status_of_the_only_sink_needs_no_name(tablectl, sink) -> None:
    ran = tablectl("sink", "status", sink, "--json")
    assert ran.code == 0
    assert (ran.data["sink"], ran.data["epoch"], ran.data["lag"]) == ("events", 0, None)
    assert [p["offset"] for p in ran.data["partitions"]] == [3, 5]
    assert "events/1" in tablectl("sink", "status", sink).out


def test_a_table_without_a_sink_has_no_status(tablectl, table) -> None:
    ran = tablectl("sink", "status", table, "--json")
    assert ran.code == 3
    assert "no Kafka sink" in ran.error["message"]


FILES = {
    "sink.toml": 'bootstrap = "127.0.0.1:1"\ntopic = ["events"]\nname = "other"\n'
    '[client]\n"socket.timeout.ms" = 10\n"enable.ssl.certificate.verification" = false\n',
    "sink.yaml": "bootstrap: 127.0.0.1:1\ntopic: [events]\nname: other\n"
    "client: {socket.timeout.ms: 10, enable.ssl.certificate.verification: false}\n",
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_has_the_options_of_the_line_and_the_line_wins(
    tablectl, sink, tmp_path, name
) -> None:
    path = tmp_path / name
    path.write_text(FILES[name])
    ran = tablectl("sink", "status", sink, "--file", path, "--json")
    assert "no sink 'other'" in ran.error["message"]
    ran = tablectl("sink", "status", sink, "--file", path, "--bootstrap", "", "--name", "events")
    assert ran.code == 0


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.toml", "brokers = 'x'", "unknown option 'brokers'"),
        ("a.toml", "bootstrap = ", "cannot be read"),
        ("a.yaml", "bootstrap: [", "cannot be read"),
        ("a.yml", "- x", "has no options"),
        ("a.toml", "interval = 'soon'", "not a valid float"),
        ("a.toml", "memory = 'much'", "is not a size"),
        ("a.toml", "file = 'b.toml'", "unknown option 'file'"),
        ("a.yaml", "name:", "'name' has no value"),
        ("a.yaml", "topic: [a, ]\ndead-letters: null", "'dead-letters' has no value"),
        ("a.yaml", "topic: [null]", "'topic' has no value"),
        ("a.yaml", "client: {security.protocol: null}", "'client' has no value"),
        ("a.yaml", "name: [a, b]", "'name' takes one value"),
        ("a.yaml", "name: {a: b}", "'name' takes one value"),
        ("a.yaml", "topic: {a: b}", "'topic' takes values"),
        ("a.yaml", "topic: [[a]]", "'topic' takes values"),
        ("a.yaml", "client: {a: [b]}", "'client' takes values"),
        ("a.yaml", "interval: true", "'interval' takes"),
        ("a.yaml", "name: yes", "'name' takes"),
        ("a.yaml", "name: a\nname: b", "'name' twice"),
        ("a.yaml", "client: {a: b, a: c}", "'a' twice"),
        ("a.yaml", "1: x", "1 is no name"),
        ("a.yaml", "? [a]\n: x", "cannot be read"),
        ("a.yaml", "<<: 1", "cannot be read"),
        ("a.yaml", "a: " + "[" * 20_000, "cannot be read"),
        ("a.toml", "a = " + "[" * 20_000, "cannot be read"),
        ("a.yaml", "client: &a {a: *a}", "nested too deeply"),
        ("a.toml", "#" * (1 << 20) + "\n", "cannot be read"),
    ],
)
def test_a_file_that_says_nonsense_is_refused(tablectl, tmp_path, name, text, says) -> None:
    path = tmp_path / name
    path.write_text(text)
    ran = tablectl("sink", "status", tmp_path, "--file", path)
    assert ran.code == 2
    assert says in ran.err


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.toml", "[client]\nsocket.timeout.ms = 'x'\n"),
        ("a.toml", "[client.socket]\ntimeout.ms = 'x'\n"),
        ("a.yaml", "client:\n  socket:\n    timeout.ms: x\n"),
    ],
)
def test_a_dotted_name_may_stand_without_quotes(tablectl, sink, tmp_path, name, text) -> None:
    """TOML reads ``a.b = 1`` as a table in a table."""
    path = tmp_path / name
    path.write_text("bootstrap = '127.0.0.1:1'\n" * (name == "a.toml") + text)
    ran = tablectl("sink", "status", sink, "--bootstrap", "127.0.0.1:1", "--file", path)
    assert ran.code == 2
    assert '"socket.timeout.ms"' in ran.err


@pytest.mark.parametrize(
    ("pairs", "says"),
    [
        (["sasl.password:hunter2"], "number 1 has no key"),
        (["a=1", "=hunter2"], "number 2 has no key"),
        (["a=1", "a=hunter2"], "has 'a' twice"),
    ],
)
def test_a_setting_that_cannot_be_read_is_refused_and_not_repeated(
    tablectl, table, pairs, says
) -> None:
    """It may be a password, and what a job prints is kept."""
    options = [text for pair in pairs for text in ("--client", pair)]
    answer = tablectl("sink", "kafka", table, *options)
    assert answer.code == 2
    assert says in answer.err
    assert "hunter2" not in answer.err + answer.out
