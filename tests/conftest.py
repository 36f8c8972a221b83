"""What every suite shares: markers by folder, services that start when first asked for."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from plait.spark.java import find_java
from tests.services.jars import find_jars, in_ci
from tests.services.kafka import Kafka
from tests.services.local_spark import QUICK_SPARK, LocalSpark, watch
from tests.services.postgresql import PostgreSql, lacking
from tests.services.s3 import S3Server
from tests.services.zookeeper import ZooKeeper
from tests.support.effort import pytest_addoption, pytest_configure  # noqa: F401 - hooks
from tests.support.suites import leave_out, require_found

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FAILED = pytest.StashKey[bool]()
GUARD = pytest.StashKey[threading.Timer]()
HERE = Path(__file__).parent

os.environ.update(QUICK_SPARK)  # for each session that a test starts, also in processes of its own


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what starts processes of its own by its folder; refuse what check.py would not find."""
    for item in items:
        require_found(item)
        if item.path.is_relative_to(HERE / "processes"):
            item.add_marker(pytest.mark.processes)
    if config.getoption("short"):
        leave_out(config, items)


def pytest_timeout_set_timer(item: pytest.Item, settings: object) -> None:
    """See to it that no test of Spark waits for the JVM after its limit."""
    if "spark" in getattr(item, "fixturenames", ()):
        item.stash[GUARD] = watch(settings.timeout)  # type: ignore[attr-defined]  # no public type


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Let that JVM live when the test is over."""
    over = yield
    if GUARD in item.stash:
        item.stash[GUARD].cancel()
    return over


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Remember for the fixtures' teardown that the test failed."""
    report = yield
    if report.failed:
        item.stash[FAILED] = True
    return report


def missing(reason: str) -> None:
    """Skip a test for want of a service; fail it where the service must be there."""
    if in_ci():
        pytest.fail(f"in CI this must be there: {reason}")
    pytest.skip(reason)


@pytest.fixture(scope="session")
def local_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalSpark]:
    """Give the keeper of the one Spark session of the run."""
    if find_spec("pyspark") is None:
        missing("pyspark is not installed")
    config = {
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
    }
    keeper = LocalSpark(config)
    yield keeper
    keeper.stop()


@pytest.fixture
def spark(local_spark: LocalSpark, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """Give the one Spark session of the run, or the next one after a test failed on it."""
    yield local_spark.session()
    if request.node.stash.get(FAILED, False):
        local_spark.give_up()


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """Give the one S3 server of the run; tests keep apart by the names of their tables."""
    for library in ("s3fs", "moto", "flask"):
        if find_spec(library) is None:
            missing(f"{library} is not installed")
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    """Give the one ZooKeeper server of the run; tests keep apart by the paths of their locks."""
    require_server("kazoo", "zookeeper")
    with ZooKeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """Give the one broker of the run; tests keep apart by the names of their topics."""
    require_server("confluent_kafka", "kafka")
    with Kafka(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


@pytest.fixture(scope="session")
def postgresql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgreSql]:
    """Give the one PostgreSQL server of the run; tests keep apart by the names of their tables."""
    if reason := lacking():
        missing(reason)
    with PostgreSql(tmp_path_factory.mktemp("postgresql")) as server:
        yield server


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    """Give three servers; a test that kills one starts it again."""
    require_server("kazoo", "zookeeper")
    with ZooKeeper(tmp_path_factory.mktemp("ensemble"), members=3) as servers:
        yield servers


def require_server(library: str, server: str) -> None:
    """Skip or fail where the client, the jars or a Java are missing."""
    if find_spec(library) is None:
        missing(f"{library} is not installed")
    if find_jars(server) is None:
        missing(f"no jars of {server}: python -m tests.services.jars (needs Maven)")
    if find_java(os.environ) is None:
        missing("no Java 17 or newer")
