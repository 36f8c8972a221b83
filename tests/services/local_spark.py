"""The Spark that tests of one process share, and its end when a test failed on it.

A test that runs out of its time stops in the middle of a reply of the JVM. Whoever asks that JVM
next reads the rest of that reply as its own, and every later test fails. So a test that fails takes
the JVM with it: it is killed, pyspark forgets it, and the next test starts another.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENT = {"spark.python.authenticate.socketTimeout": "600s", "spark.network.timeout": "800s"}
"""For a busy machine: by default Spark gives a worker 15 s to call, and an executor 120 s."""
QUICK_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""For JVMs that live for minutes: what the optimising compiler does for them costs more than it
gains (two fifths of the processor time of a suite), and more so where cores are few."""
QUICK_SPARK = {"SPARK_SUBMIT_OPTS": QUICK_JVM, "SPARK_LAUNCHER_OPTS": QUICK_JVM}
"""The same, as environment of whoever starts a session."""
WARM = Path(__file__).with_name("warm")
GRACE_S = 1.0
"""How long a test may still unwind after its limit. Unwinding may itself wait for the JVM."""


class LocalSpark:
    """One session of two cores and little memory, started when it is first asked for."""

    def __init__(self, config: Mapping[str, str]) -> None:
        self._config = config

    def session(self) -> SparkSession:
        """Return the session; start one if there is none."""
        from plait.spark import session

        try:
            # Two cores, three attempts a task: without the number none is tried again here.
            with warm_workers():
                return session(master="local[2,3]", **PATIENT, **self._config)
        except BaseException:  # a time-out, too, may leave half a session
            self.give_up()
            raise

    def give_up(self) -> None:
        """Kill the JVM, and make pyspark forget it: the next call of ``session`` starts another."""
        from pyspark import SparkContext
        from pyspark.sql import SparkSession
        from pyspark.sql.context import SQLContext

        kill_jvm()
        context, gateway = SparkContext._active_spark_context, SparkContext._gateway
        if context is not None:
            context._jsc = None
            with contextlib.suppress(Exception):
                context._accumulatorServer.shutdown()
        if gateway is not None:
            with contextlib.suppress(Exception):  # whatever a dead JVM's client still complains of
                gateway.shutdown()
        SparkContext._active_spark_context = SparkContext._gateway = SparkContext._jvm = None
        SparkSession._instantiatedSession = SparkSession._activeSession = None
        SQLContext._instantiatedContext = None

    def stop(self) -> None:
        """Stop the session in good order, if one runs."""
        from pyspark.sql import SparkSession

        if (running := SparkSession._instantiatedSession) is not None:
            running.stop()


@contextlib.contextmanager
def warm_workers() -> Iterator[None]:
    """Let a JVM that starts meanwhile fork its Python workers with everything imported."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(WARM), before]))
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def kill_jvm() -> None:
    """Kill this process's JVM, if it has one; whoever waits for its reply fails at once."""
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    if process is not None:
        process.kill()
        process.wait()
        process.stdin.close()


def watch(limit_s: float) -> threading.Timer:
    """Kill the JVM soon after a test's limit, lest the test wait for it for ever."""
    timer = threading.Timer(limit_s + GRACE_S, kill_jvm)
    timer.daemon = True
    timer.start()
    return timer


def wait_idle(spark: SparkSession) -> None:
    """Wait for tasks that outlive their job: when one has failed, Spark ends it without them."""
    store = spark.sparkContext._jsc.sc().statusStore()
    while any(each.activeTasks() for each in _items(store.executorList(True))):
        threading.Event().wait(0.05)


def _items(found: object) -> list[Any]:
    return [found.apply(at) for at in range(found.size())]  # type: ignore[attr-defined]  # Scala's
