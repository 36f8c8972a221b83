"""Tables in a process whose locale has no UTF-8."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes

_PROGRAM = """
import os
import sys
import pyarrow as pa
from plait import Table
from plait.cli.main import main
from plait.errors import OptionError

plain = sys.argv[1]
assert sys.getfilesystemencoding() == "ascii"
for place in (f"{plain}/caf\\xe9", sys.argv[2]):
    for act in (lambda: Table.create(place, "id bigint"), lambda: Table.open(place)):
        try:
            act()
        except OptionError as error:
            assert "PYTHONUTF8" in error.hint
        else:
            raise AssertionError(ascii(place))
columns = "id bigint, `\\xe9` string, p string"
table = Table.create(f"{plain}/t", columns, record_key=["id"], partition_by=["p"])
table.append(pa.table({"id": pa.array([1]), "\\xe9": ["\\xe9"], "p": ["\\xe9"]}))
opened = Table.open(f"{plain}/t")
assert opened.scan(where="p = '\\xe9'").to_arrow()["\\xe9"].to_pylist() == ["\\xe9"]
os.makedirs(f"{plain}/t/data")
open(f"{plain}/t/data/".encode() + b"\\xc3\\xa9", "w").close()
for words in (["schema"], ["verify"], ["history"], ["files"]):
    assert main([*words, f"{plain}/t"]) == 0
assert main(["describe", sys.argv[2]]) == 2
print("JSON", flush=True)
assert main(["schema", f"{plain}/t", "--json"]) == 0
"""


def test_a_locale_without_utf8_reads_and_writes_any_text_and_refuses_paths_it_cannot_name(
    tmp_path: Path,
) -> None:
    other = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(tmp_path), str(tmp_path / "d\u00e9j\u00e0")],
        env={**os.environ, **other},
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    text, _, document = done.stdout.decode("ascii").partition("JSON\n")
    assert "\\xe9" in text
    assert "\u00e9" in str(json.loads(document)["data"])
    assert sorted(each.name for each in tmp_path.iterdir()) == ["t"]
