"""The public face: names, what importing costs, what is documented."""

from __future__ import annotations

import ast
import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest

import plait
from plait import errors
from plait.cli.commands.explain import load_explanations
from plait.cli.exits import EXITS, MEANING, Exit, exit_for
from plait.model.contract import OPTIONS

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("deltalake", "filelock", "kazoo", "pandas", "polars", "pyspark", "s3fs", "sqlglot")
IMPORT_MS = 300
LOAD = """
import json, sys, time
before = time.process_time()
{statement}
spent = (time.process_time() - before) * 1000
print(json.dumps({{"ms": spent, "modules": sorted(sys.modules)}}))
"""


def error_classes() -> list[type[errors.TableError]]:
    found = [value for value in vars(errors).values() if inspect.isclass(value)]
    return [each for each in found if issubclass(each, errors.TableError)]


def load(statement: str) -> tuple[float, set[str]]:
    """Import in a fresh interpreter; give CPU ms and the modules that are there after it."""
    command = [sys.executable, "-c", LOAD.format(statement=statement)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    return found["ms"], set(found["modules"])


def test_public_names_are_sorted_and_there() -> None:
    assert plait.__all__ == sorted(plait.__all__)
    assert all(hasattr(plait, name) for name in plait.__all__)
    assert set(plait.__all__) <= set(dir(plait))


def test_public_names_have_every_error() -> None:
    assert {each.__name__ for each in error_classes()} <= set(plait.__all__)
    assert {"InvariantError", "Retry"} <= set(plait.__all__)


def test_a_type_checker_knows_every_public_name() -> None:
    """It does not see what is imported when it is first named: for it, that would be an object."""
    tree = ast.parse((ROOT / "src/plait/__init__.py").read_text(encoding="utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert set(plait.__all__) <= {alias.name for each in imports for alias in each.names}


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError):
        plait.Tabel  # noqa: B018 - looked up for its error


@pytest.mark.parametrize(
    "statement",
    [
        "import plait",
        "from plait import Table",
        "import plait.spark",
        "from plait.cli.main import main",
    ],
)
def test_import_is_light(statement: str) -> None:
    """CPU time, the least of three: the machine's load is not the library's."""
    arrow = statement == "from plait import Table"  # most of its time is Arrow's own
    runs = [load(statement) for _ in range(1 if arrow else 3)]
    modules = {name.split(".", 1)[0] for name in runs[0][1]}
    assert not modules & set(HEAVY)
    if not arrow:
        assert "pyarrow" not in modules
        assert min(spent for spent, _ in runs) < IMPORT_MS


def test_a_task_of_spark_loads_no_transaction_and_no_lock() -> None:
    """Each executor imports it: only the driver publishes."""
    _, modules = load("import plait.spark.task")
    rooms = {name.split(".")[1] for name in modules if name.startswith("plait.")}
    assert not rooms & {"cli", "locks", "services", "stream", "txn", "write"}


def test_error_codes_are_unique_and_drawn() -> None:
    codes = [each.code for each in error_classes()]
    assert len(codes) == len(set(codes))
    assert all(each.__name__ in (errors.__doc__ or "") for each in error_classes())


def test_every_error_has_its_section() -> None:
    missing = {each.code for each in error_classes()} - set(load_explanations())
    assert not missing, f"add to src/plait/cli/errors.md: {sorted(missing)}"


def test_every_error_has_an_exit_code() -> None:
    assert set(MEANING) == set(Exit)
    for each in error_classes():
        assert any(base in EXITS for base in each.__mro__) or each is errors.TableError
        assert exit_for(each) in Exit


def test_every_option_is_documented() -> None:
    assert all(option.doc for option in OPTIONS.values())


@pytest.mark.parametrize("key", OPTIONS)
def test_the_default_of_an_option_is_a_value_that_may_be_set(key: str) -> None:
    """Else ``parse`` says what is wrong with it."""
    OPTIONS[key].parse(OPTIONS[key].default)


def test_library_never_prints() -> None:
    """The command line renders; ruff's T20 sees calls, this sees names too."""
    for path in (ROOT / "src").rglob("*.py"):
        names = {
            node.id
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.Name)
        }
        assert not names & {"print", "eval", "exec"}, path
