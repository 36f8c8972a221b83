"""A Spark session with everything set: Java found, workers that can import what Plait imports."""

from __future__ import annotations

import os
import re
import shlex
import socket
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from plait.errors import MissingDependencyError, OptionError
from plait.model.consent import ENVIRONMENT, Consent
from plait.spark.java import launch_home, require_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MASTER = "spark.master"
_PYTHON = "spark.pyspark.python"
_LOCAL = re.compile(r"local(?:\[(\d+|\*)(?:,\d+)?\])?", re.ASCII)
_ALLOW = f"spark.executorEnv.{ENVIRONMENT}"
_QUIET = Path(__file__).with_name("log4j2.properties")

RECOMMENDED = {
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # With a limit Spark adds up the size of a batch anew for each row: half of the time that rows
    # take to Python. Batches are bounded by their rows (arrow.maxRecordsPerBatch) all the same.
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
    # A bucket is a file. With Spark's 128 MiB a table of a few hundred MiB becomes three tasks, the
    # last of them small, and the cores wait for one another.
    "spark.sql.files.maxPartitionBytes": "64m",
}
"""What makes Plait fast in a session that others start, where it can still be set."""

# Spark's own code fills Arrow's vectors; checking each index costs a tenth of a job.
RECOMMENDED_JVM = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
"""The same for the JVMs of driver and executors, when they start."""

RECOMMENDED_START = {
    "spark.driver.extraJavaOptions": RECOMMENDED_JVM,
    "spark.executor.extraJavaOptions": RECOMMENDED_JVM,
}
"""What makes Plait fast and is settled when Spark starts."""

RECOMMENDED_LOCAL = {
    # Over TCP a task that runs Python waits 40 ms for an acknowledgement that is delayed. Not on a
    # cluster: the socket lies in Java's temporary directory, whose path can be too long there.
    "spark.python.unix.domain.socket.enabled": str(hasattr(socket, "AF_UNIX")).lower(),
}
"""The same, where all of Spark runs on one machine."""

_DEFAULTS = {
    **RECOMMENDED,
    **RECOMMENDED_START,
    "spark.app.name": "plait",
    # Why a worker process ended becomes part of the error; the sink, too, tells it by this.
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
    "spark.driver.extraJavaOptions": (
        f"-Dlog4j2.configurationFile={_QUIET.as_uri()} {RECOMMENDED_JVM}"
    ),
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def session(
    *,
    master: str | None = None,
    remote: str | None = None,
    allow: str | Iterable[str] | None = None,
    **config: str | float,
) -> SparkSession:
    """Return a Spark session in which Plait works as it is.

    A session that runs in this process is used again, with the SQL settings of ``config`` put
    on top, and becomes that of the calling thread: in a thread that has none Spark finds no data
    source. Otherwise a Java is found (see ``plait.spark.java``), the workers' Python is this
    interpreter (another may lack pyarrow), and Spark starts on this machine with all its cores,
    times in UTC, no web page and few words. Each default gives way to ``config``. The environment
    of the process is left as it was.

    With ``remote`` the session is a client of Spark Connect: nothing starts here and no Java is
    needed, and of the defaults those that a session may set are set on the server.

    Args:
        master: where Spark runs, for example ``local[2]``; all cores of this machine if None.
        remote: the server of Spark Connect, for example ``sc://host:15002``.
        allow: the places outside of tables that these may name and that the data source then uses,
            as in ``Table.open``, for all of the session. A session that runs cannot be told; there
            the data source takes the option ``allow``.
        config: Spark's own settings, for example ``**{"spark.driver.memory": "2g"}``.

    Raises:
        MissingDependencyError: pyspark is not installed, or what Spark Connect needs is not, or
            there is no Java 17 or newer.
        OptionError: a key of ``config`` does not begin with ``spark.``, or ``remote`` is no
            server's address, or stands beside ``master``; or a session runs that allows other
            places than ``allow``.
    """
    given = {**_checked(config), **_allowed(allow, remote)}
    if remote is not None:
        return _client(remote, master, given)
    if master is not None:
        given[_MASTER] = master
    builder = _session_class().builder
    if _running() is None:
        given = {**_defaults(given.get(_MASTER, "local[*]")), **given}
    for key, value in given.items():
        builder = builder.config(key, value)
    with _environment(given):
        found = builder.getOrCreate()
    if _session_class().getActiveSession() is None:
        # Another thread's session: this makes it ours too, and nothing else that is public does.
        found.createDataFrame([], "nothing int")
    return found


def local_cores(master: str) -> int | None:
    """Return the cores that Spark uses where all of it runs in one process; None elsewhere.

    >>> local_cores("local[2,3]"), local_cores("local"), local_cores("spark://host:7077")
    (2, 1, None)
    """
    found = _LOCAL.fullmatch(master)
    if found is None:
        return None
    if found[1] == "*":
        return os.cpu_count() or 1
    return int(found[1] or 1)


def _client(remote: str, master: str | None, config: dict[str, str]) -> SparkSession:
    """Connect to a server; its own settings stay as whoever started it set them."""
    if master is not None or _MASTER in config or not remote.startswith("sc://"):
        message = f"remote={remote!r} is not a Spark Connect server"
        hint = "for example remote='sc://host:15002'"
        if remote.startswith("sc://"):
            message, hint = "master and remote are both given", "the server chose its master"
        raise OptionError(message, hint=hint, key="remote", value=remote)
    builder = _session_class().builder.remote(remote)
    defaults = {key: value for key, value in _DEFAULTS.items() if key.startswith("spark.sql.")}
    for key, value in {**defaults, **config}.items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except ImportError as error:
        message = "the client of Spark Connect is not installed"
        raise MissingDependencyError(
            message, hint="pip install 'plait[connect]'", library="grpcio", extra="connect"
        ) from error


def _session_class() -> type[SparkSession]:
    try:
        from pyspark.sql import SparkSession  # noqa: PLC0415 - an extra, imported when first used
    except ImportError as error:
        message = "pyspark is not installed"
        raise MissingDependencyError(
            message, hint="pip install 'plait[spark]'", library="pyspark", extra="spark"
        ) from error
    return SparkSession


def _running() -> SparkSession | None:
    """Return the session of this thread, or else of the process."""
    try:
        return _session_class().active()
    except RuntimeError:  # Spark's own kind of it: there is none
        return None


def _checked(config: Mapping[str, str | float]) -> dict[str, str]:
    for key, value in config.items():
        if not key.startswith("spark."):
            message = f"{key!r} is not a setting of Spark"
            raise OptionError(message, hint="its keys begin with 'spark.'", key=key, value=value)
    # Spark reads true and false in small letters only.
    return {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in config.items()
    }


def _allowed(allow: str | Iterable[str] | None, remote: str | None) -> dict[str, str]:
    """Return the setting that tells executors what is allowed; the JVM is told by ``_environment``.

    Raises:
        OptionError: a session runs already, or elsewhere, and does not allow it.
    """
    if not allow:
        return {}
    text = shlex.join(Consent.of(allow).patterns)
    running = None if remote is not None else _running()
    if remote is None and (running is None or running.conf.get(_ALLOW, "") == text):
        return {_ALLOW: text}
    message = "a session of Spark that runs already cannot be told what is allowed"
    hint = 'pass it to the data source: .option("allow", ...), or to Table.open(allow=...)'
    raise OptionError(message, hint=hint, key="allow", value=text)


def _defaults(master: str) -> dict[str, str]:
    settings = {**_DEFAULTS, _MASTER: master, _PYTHON: sys.executable}
    cores = local_cores(master)
    if cores is not None:
        settings |= {
            **RECOMMENDED_LOCAL,
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.sql.shuffle.partitions": str(2 * cores),
        }
    return settings


@contextmanager
def _environment(config: Mapping[str, str]) -> Iterator[None]:
    """Set what Spark's launcher reads from the environment, only while it starts."""
    if _running() is not None:
        yield
        return
    python = config.get(_PYTHON, sys.executable)
    # Spark runs data sources with the driver's Python, which may be a notebook's by now.
    wanted = {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python}
    wanted["JAVA_HOME"] = str(launch_home(require_java(os.environ)))
    if home := _bundled_spark():
        # A SPARK_HOME left over from another Spark would start that one, of another version.
        wanted["SPARK_HOME"] = str(home)
    if _ALLOW in config:  # the processes of data sources inherit it from the JVM
        wanted[ENVIRONMENT] = config[_ALLOW]
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _bundled_spark() -> Path | None:
    """Return the Spark inside the pyspark wheel; None where pyspark came without its jars."""
    spec = find_spec("pyspark")
    for root in (spec.submodule_search_locations or ()) if spec else ():
        if (Path(root) / "jars").is_dir():
            return Path(root)
    return None
