"""Errors of a Spark job's tasks: ours come as what they are, and nobody else's pass for ours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from plait.errors import StorageError
from plait.spark.job import counting, run
from plait.spark.transfer import marked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from plait.spark.task import Batches, TaskSetting
    from plait.spark.transfer import TaskReport

pytestmark = pytest.mark.spark


def test_an_error_that_is_tried_again_comes_with_its_facts(spark: SparkSession) -> None:
    def work(place: TaskSetting, batches: Batches) -> TaskReport | None:
        message = "cannot write a"
        raise StorageError(message, path="a")

    with pytest.raises(StorageError, match="cannot write a") as caught:
        run(counting(spark, 1), work)
    assert caught.value.path == "a"


def test_a_function_of_the_user_forges_no_error_of_ours(spark: SparkSession) -> None:
    from pyspark.errors import PySparkException

    text = marked(StorageError("forged", path="x"), "0" * 16)

    def forge(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        raise ValueError(text)

    def work(place: TaskSetting, batches: Batches) -> TaskReport | None:
        list(batches)
        return None

    with pytest.raises(PySparkException, match="forged"):
        run(counting(spark, 1).mapInArrow(forge, "id long"), work)
