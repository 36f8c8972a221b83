"""The root: quick start, where output goes, errors, questions."""

from __future__ import annotations

import io
import json
import shlex
import subprocess
import sys

import pytest

from plait.cli.application import Application, Settings
from plait.cli.exits import RefusedError
from plait.cli.main import ENTRIES, ROOT, main
from plait.cli.render import Streams

_HEAVY = ("pyarrow", "rich", "numpy", "pyspark", "plait.table", "fsspec")
_PROBE = """
import sys
from plait.cli.main import main
code = main(sys.argv[1:])
sys.stderr.write(",".join(name for name in {heavy!r} if name in sys.modules))
sys.exit(code)
"""


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_start_up_loads_neither_arrow_nor_rich_nor_spark(argument):
    ran = subprocess.run(
        [sys.executable, "-c", _PROBE.format(heavy=_HEAVY), argument],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "tablectl" in ran.stdout
    assert ran.stderr == ""


def test_help_of_the_root_says_what_the_help_of_each_command_says():
    """The root knows commands without loading them: the two texts must not drift apart."""
    for name, entry in ENTRIES.items():
        command = ROOT.get_command(None, name)
        assert command.help.splitlines()[0] == entry.help


@pytest.mark.parametrize("name", ENTRIES)
def test_help_of_each_command_shows_two_examples_that_parse(name):
    command = ROOT.get_command(None, name)
    assert len(command.examples) == 2
    for example in command.examples:
        first, *arguments = shlex.split(example)
        assert first == name
        command.make_context(name, arguments)


def test_wrong_usage_ends_in_2_on_stderr_with_a_hint(tablectl, capsys):
    ran = tablectl("explain")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("error[usage]: ")
    assert "hint: see `tablectl explain --help`" in ran.err
    assert tablectl("frobnicate").code == 2
    assert main([]) == 2
    assert "Commands:" in capsys.readouterr().err


def test_error_in_json_is_a_document_on_stderr_and_nothing_on_stdout(tablectl):
    ran = tablectl("explain", "nothing-like-it", "--json")
    assert (ran.code, ran.out) == (3, "")
    document = json.loads(ran.err)
    assert list(document) == ["schema", "command", "table", "error"]
    assert (document["schema"], document["command"]) == ("tablectl/v1", "explain")
    assert document["error"]["exit"] == 3


def test_explain_gives_the_section_of_the_errors_page_in_every_form(tablectl):
    ran = tablectl("explain", "outcome_unknown")
    assert (ran.code, ran.err) == (0, "")
    assert "Nothing was deleted" in ran.out
    for shared in (("--json", "explain", "lock"), ("explain", "lock", "--json")):
        assert tablectl(*shared).data["code"] == "lock"


def test_defect_shows_its_trace_only_with_debug_and_an_interrupt_none(tablectl, monkeypatch):
    errors = [KeyboardInterrupt(), ZeroDivisionError("boom"), ZeroDivisionError("boom")]

    def broken():
        raise errors.pop()

    monkeypatch.setattr("plait.cli.commands.explain.load_explanations", broken)
    ran = tablectl("explain", "lock")
    assert ran.code == 1
    assert ran.err.startswith("error[bug]: ZeroDivisionError: boom")
    assert "Traceback" not in ran.err
    assert "Traceback" in tablectl("explain", "lock", "--debug").err
    assert tablectl("explain", "lock").code == 130


def test_reader_that_leaves_early_is_no_failure():
    command = [sys.executable, "-m", "plait.cli", "explain", "lock"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.wait() == 0
        assert process.stderr.read() == b""


def _application(answer: str | None) -> Application:
    class Person(io.StringIO):
        def isatty(self) -> bool:
            return answer is not None

    return Application(Settings(), Streams(Person(answer or ""), io.StringIO(), Person()))


def test_confirm_takes_nothing_but_a_yes():
    _application(None).confirm("delete?", yes=True)
    with pytest.raises(RefusedError, match="needs a terminal") as caught:
        _application(None).confirm("delete?", yes=False)
    assert "--yes" in caught.value.hint
    for answer in ("y\n", "Yes\n"):
        app = _application(answer)
        app.confirm("delete?", yes=False)
        assert app.streams.err.getvalue() == "delete? [y/N] "
    for answer in ("\n", "n\n", "", "sure\n"):
        with pytest.raises(RefusedError, match="not confirmed"):
            _application(answer).confirm("delete?", yes=False)
