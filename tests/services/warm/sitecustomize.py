"""Imports what Spark's Python workers need into the daemon that they are forked from.

Python imports this module at its start where this folder is on ``PYTHONPATH``. pyspark's daemon
imports nothing beforehand, so that every worker of a data source, of which one write takes five,
would spend a second on imports. Tests that start a Spark of their own do without: there it is as it
is for users.
"""

import importlib
import sys

if "pyspark.daemon" in sys.orig_argv:
    # ``python -m pyspark.daemon MODULE``: what the workers run.
    for name in (sys.orig_argv[-1], "pandas", "plait.spark.task", "pyspark_plait"):
        importlib.import_module(name)
