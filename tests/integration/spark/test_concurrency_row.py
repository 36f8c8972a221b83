"""One row of RFC-22's matrix with a Spark job as one of the writers, in turns by the file lock."""

from __future__ import annotations

import multiprocessing
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from plait import Table
from plait.spark import session
from tests.processes.hands import Orders, rows, serve
from tests.processes.test_concurrency_matrix import Cell, name_of, play

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

ROW: list[Cell] = [
    Cell("cow", "overlapping", "lazy", "from-decisions", "with-statistics", "clean-inline"),
    Cell("mor", "disjoint", "lazy", "from-checkpoints", "without-statistics", "clean-beside"),
]


class SparkHand(Orders):
    """A thread of this driver that writes DataFrames."""

    def __init__(self, uri: str) -> None:
        self._wire, other = multiprocessing.Pipe()
        self.pid = os.getpid()

        def run() -> None:
            spark = session()  # becomes this thread's
            serve(other, Table.open(uri), lambda *facts: frame(spark, *facts))

        self._thread = threading.Thread(target=run)
        self._thread.start()

    def stop(self) -> None:
        self._wire.close()
        self._thread.join()


def frame(spark: SparkSession, place: str, value: int, *ids: int) -> DataFrame:
    return spark.createDataFrame(rows(place, value, *ids))


@pytest.mark.parametrize("cell", ROW, ids=name_of)
def test_rfc22_with_a_spark_job(spark: SparkSession, tmp_path: Path, cell: Cell) -> None:
    """INV-03 to INV-08."""
    play(tmp_path, cell, other=SparkHand)
