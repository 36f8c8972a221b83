"""Golden shapes of text and JSON."""

from __future__ import annotations

import io
import json

import click
import pytest

from plait.cli.exits import Exit, Failure
from plait.cli.flow import BAR_WIDTH
from plait.cli.main import main
from plait.cli.render import JsonRenderer, Streams
from plait.cli.text import TextRenderer
from plait.cli.view import Facts, Grid, Prose, View, cell, duration, number, size, time_short

FAILURE = Failure("lock_timeout", "held", "try again", Exit.LOCK, "LockTimeoutError", "same", {})


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _streams(stream=io.StringIO) -> Streams:
    return Streams(stream(), stream(), stream())


def _view(**more) -> View:
    grid = Grid((">n", "name"), [[1, "a"], [20, None]])
    return View(
        "files", "/t", {"files": [1]}, (Facts((("rows", 3), ("key", ["a", "b"]))), grid), **more
    )


@pytest.mark.parametrize("lines", [False, True])
def test_json_is_one_enveloped_line_or_the_bare_entries_of_a_list(lines):
    streams = _streams()
    JsonRenderer(streams, lines=lines).show(_view())
    document = (
        '{"schema": "tablectl/v1", "command": "files", "table": "/t", "data": {"files": [1]}}\n'
    )
    assert streams.out.getvalue() == document
    JsonRenderer(streams, lines=lines).show(_view(items=[{"a": 1}, {"a": 2}]))
    entries = '{"a": 1}\n{"a": 2}\n' if lines else document
    assert streams.out.getvalue() == document + entries


def test_json_error_and_preview_go_to_stderr():
    streams = _streams()
    renderer = JsonRenderer(streams, lines=False)
    renderer.error(FAILURE, command="set", table="/t")
    renderer.preview(_view())
    assert streams.out.getvalue() == ""
    error, preview = map(json.loads, streams.err.getvalue().splitlines())
    assert error["error"]["error"] == "lock_timeout"
    assert preview["data"] == {"files": [1]}


def test_text_in_a_pipe_is_aligned_and_bare_and_never_folded():
    streams = _streams()
    TextRenderer(streams, color=True, quiet=False).show(_view())
    assert streams.out.getvalue() == (
        "rows  3\n"
        "key   a, b\n"
        "\n"
        " n  name\n"
        " 1  a\n"
        "20  -\n"
    )  # fmt: skip
    for rows, lines in (([["x" * 500, "y z " * 200]], 2), ([], 1)):
        streams = _streams()
        grid = Grid(("a", ">b"), rows)
        TextRenderer(streams, color=False, quiet=False).show(View("x", None, None, (grid,)))
        assert len(streams.out.getvalue().splitlines()) == lines
    assert streams.out.getvalue() == "a  b\n", "an empty grid shows its columns"


@pytest.mark.parametrize("color", [True, False])
def test_text_on_a_terminal_has_colour_only_if_wanted(color):
    streams = _streams(Terminal)
    renderer = TextRenderer(streams, color=color, quiet=False)
    renderer.show(_view())
    renderer.error(FAILURE, command="", table=None)
    assert "rows" in streams.out.getvalue()
    assert ("\x1b[31" in streams.err.getvalue()) is color
    assert "error[lock_timeout]:" in streams.err.getvalue()


@pytest.mark.parametrize(
    "block", [Facts((("a", "\x1b[2J"),)), Grid(("a",), [["\x1b[2J"]]), Prose("\x1b[2J")]
)
@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_text_never_lets_data_steer_the_terminal(block, stream):
    """Names in a table are untrusted: an escape sequence is shown, not obeyed."""
    streams = _streams(stream)
    TextRenderer(streams, color=False, quiet=False).show(View("x", None, None, (block,)))
    assert "\x1b[2J" not in streams.out.getvalue()
    assert r"\x1b[2J" in streams.out.getvalue()


def test_text_markup_in_data_is_shown_as_it_is():
    streams = _streams(Terminal)
    grid = Grid(("a",), [["[red]x[/red]"]])
    TextRenderer(streams, color=True, quiet=False).show(View("x", None, None, (grid,)))
    assert "[red]x[/red]" in streams.out.getvalue()


def test_quiet_leaves_out_previews_and_neither_results_nor_errors():
    streams = _streams()
    renderer = TextRenderer(streams, color=True, quiet=True)
    renderer.preview(_view())
    assert streams.out.getvalue() == ""
    renderer.show(_view())
    assert streams.out.getvalue() != ""
    renderer.error(FAILURE, command="", table=None)
    assert streams.err.getvalue() == "error[lock_timeout]: held\nhint: try again\n"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        ("", "-"),
        ([], "-"),
        (False, "no"),
        (0, "0"),
        (["a", None], "a, -"),
        ("a\nb", r"a\nb"),
    ],
)
def test_cell_writes_values_for_people(value, text):
    assert cell(value) == text


def test_units_are_iso_times_and_binary_sizes():
    assert time_short(1_767_225_600_123) == "2026-01-01 00:00:00"
    assert (size(1023), size(1024), size(5 << 40)) == ("1023 B", "1.0 KiB", "5.0 TiB")
    assert (duration(90_000), duration(150_000), duration(None)) == ("90.0 s", "2 min 30 s", "-")
    assert (number(None), number(1_000)) == ("-", "1,000")


@pytest.mark.parametrize("command", ["history", "timeline", "files", "describe"])
def test_a_list_fits_into_80_columns_and_breaks_no_header(command, table, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    told = {}
    for more in ([], ["--wide"]):
        streams = Streams(io.StringIO(), Terminal(), Terminal())
        assert main([command, table, *more, "--no-color"], streams) == 0
        told[bool(more)] = streams
    lines = click.unstyle(told[False].out.getvalue()).splitlines()
    assert max(map(len, lines)) <= 80
    if command == "describe":
        return
    assert "--wide also shows: " in told[False].err.getvalue()
    wide = click.unstyle(told[True].out.getvalue()).splitlines()
    assert "--wide" not in told[True].err.getvalue()
    shown = [{title.strip() for title in each[1].strip("┃").split("┃")} for each in (lines, wide)]
    left_out = told[False].err.getvalue().partition(": ")[2].strip().split(", ")
    assert shown[0] | {*left_out} == shown[1]
    if command == "timeline":
        assert any(line.count(".") + line.count("=") >= BAR_WIDTH for line in lines)
