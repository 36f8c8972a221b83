"""The main job on real data: five PySpark processes write one table, one of them is killed.

Three ingest an airport each, one corrects delays of all three, one writes a bad backfill and is
killed after its first staged file. What must come out follows from the source alone, and every
value is compared with it.
"""
