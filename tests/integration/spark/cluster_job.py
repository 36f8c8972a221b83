"""A job for a cluster whose workers have no Plait; ``test_cluster.py`` starts it.

It says in JSON what it saw. What ships Plait is the code of the page, given as text.
"""

from __future__ import annotations

import json
import sys

import plait.spark
from plait import Table

SMALL = {
    "spark.cores.max": "2",
    "spark.executor.memory": "512m",
    "spark.driver.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "4",
}


def where(batches):
    """Tell from inside of a task where it is, where Plait is, and what there is besides."""
    import os
    import subprocess
    import sys
    from importlib.util import find_spec

    import pyarrow as pa

    for _ in batches:
        pass
    plain = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [sys.executable, "-c", "import pyarrow, pandas; import plait"]
    done = subprocess.run(command, env=plain, capture_output=True, text=True, check=False)
    row = {
        "place": [os.getcwd()],
        "found": [find_spec("plait").origin],
        "without": [done.stderr.strip().splitlines()[-1]],
    }
    yield pa.record_batch(row)


def look(spark):
    schema = "place string, found string, without string"
    rows = spark.range(0, 8, 1, 8).mapInArrow(where, schema).collect()
    return sorted({tuple(row) for row in rows})


def rows(spark, start, stop, rev):
    """Give rows that each task spreads over every bucket."""
    select = ("id", "concat('p', id % 3) AS part", f"{rev}L AS rev")
    return spark.range(start, stop, 1, 4).selectExpr(*select)


def work(spark, uri, table_type):
    """Write and read in every way that puts work on executors."""
    key = {"record_key": ["id"], "partition_by": ["part"], "table_type": table_type}
    table = Table.create(uri, "id bigint, part string, rev bigint", buckets=2, **key)
    table.insert(rows(spark, 0, 100, 1))
    table.upsert(rows(spark, 50, 150, 2))
    if table_type == "cow":
        few = rows(spark, 20, 30, 4).where("part = 'p1'")
        table.overwrite(few, where="part = 'p1' AND id < 40")
    else:
        table.delete(keys=rows(spark, 0, 10, 0).select("id", "part"))
        save = rows(spark, 140, 160, 3).write.format("plait").option("operation", "upsert")
        save.mode("append").save(uri)
    return {
        "table": held(table.scan().to_spark(spark)),
        "problems": len(table.check.verify().problems),
    }


def held(frame):
    """Give what a frame holds, as the executors read it."""
    return sorted(map(list, frame.select("id", "rev").collect()))


def main():
    """Ship Plait in the page's own words, on this cluster, with small executors."""
    page, place = sys.argv[1:]
    original = plait.spark.session
    plait.spark.session = lambda **config: original(**config, **SMALL)
    names = {}
    exec(compile(page, "cluster.md", "exec"), names)
    spark = names["spark"]
    found = {"tasks": look(spark)}
    for kind in ("cow", "mor"):
        found[kind] = work(spark, f"{place}/{kind}", kind)
    found["source"] = held(spark.read.format("plait").load(f"{place}/mor"))
    spark.stop()
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
