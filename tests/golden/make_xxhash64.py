"""Make ``xxhash64.json`` with Spark itself: ``python tests/golden/make_xxhash64.py``.

Needs pyspark and Java. The vectors were made with Spark 4.2.0. Each case names its columns' types
and holds rows of canonical texts with Spark's ``xxhash64`` of them.
"""

from __future__ import annotations

import json
from pathlib import Path

from pyspark.sql import SparkSession

CASES: list[tuple[list[str], list[list[str | None]]]] = [
    (["boolean"], [["true"], ["false"], [None]]),
    (["tinyint"], [["0"], ["1"], ["-1"], ["-128"], ["127"], [None]]),
    (["smallint"], [["0"], ["1"], ["-1"], ["-32768"], ["32767"]]),
    (["int"], [["0"], ["1"], ["-1"], ["42"], ["-2147483648"], ["2147483647"], [None]]),
    (
        ["bigint"],
        [["0"], ["1"], ["-1"], ["42"], ["-9223372036854775808"], ["9223372036854775807"], [None]],
    ),
    (["date"], [["1970-01-01"], ["2026-02-28"], ["1582-10-04"], ["0001-01-01"], [None]]),
    (
        ["timestamp"],
        [
            ["1970-01-01T00:00:00.000000Z"],
            ["2013-01-01T05:00:00.000000Z"],
            ["1969-12-31T23:59:59.999999Z"],
            [None],
        ],
    ),
    (
        ["timestamp_ntz"],
        [["1970-01-01T00:00:00.000000"], ["2026-06-30T12:34:56.789012"], [None]],
    ),
    (
        ["string"],
        [[text] for text in ("", "a", "abc", "JFK", "é", "日本語", "\U0001f600", "a\x00b")],
    ),
    (["string"], [["x" * length] for length in (3, 4, 5, 7, 8, 9, 12, 15, 16, 20, 24, 31)]),
    (["string"], [["yz" * length] for length in (16, 17, 20, 32, 33, 50, 127, 128, 500, 3000)]),
    (["string"], [[None]]),
    (["binary"], [[""], ["00"], ["ff"], ["00ff80"], ["0123456789abcdef" * 3], [None]]),
    (["decimal(9,2)"], [["0.00"], ["1.50"], ["-1.50"], ["9999999.99"], [None]]),
    (["decimal(18,0)"], [["0"], ["999999999999999999"], ["-999999999999999999"]]),
    (
        ["decimal(38,4)"],
        [
            ["0.0000"],
            ["0.0001"],
            ["-0.0001"],
            ["0.0127"],
            ["0.0128"],
            ["0.0255"],
            ["0.0256"],
            ["-0.0128"],
            ["-0.0129"],
            ["922337203685477.5807"],
            ["922337203685477.5808"],
            ["-922337203685477.5808"],
            ["-922337203685477.5809"],
            ["9999999999999999999999999999999999.9999"],
            ["-9999999999999999999999999999999999.9999"],
            [None],
        ],
    ),
    (["decimal(19,0)"], [["1"], ["-1"], ["9999999999999999999"]]),
    (
        ["timestamp", "string", "bigint"],
        [
            ["2013-01-01T10:00:00.000000Z", "UA", "1545"],
            ["2013-01-01T10:00:00.000000Z", None, "1545"],
            [None, "UA", None],
            [None, None, None],
            ["2013-12-31T23:00:00.000000Z", "", "-1"],
        ],
    ),
    (["int", "int"], [["1", "2"], ["2", "1"], [None, "1"], ["1", None]]),
    (["string", "decimal(38,0)", "boolean"], [["k", "-1", "true"], ["k" * 40, "255", "false"]]),
]


def _literal(text: str | None, kind: str) -> str:
    if text is None:
        return f"cast(null as {kind})"
    if kind == "string":
        return f"decode(unhex('{text.encode().hex()}'), 'UTF-8')"
    if kind == "binary":
        return f"unhex('{text}')"
    return f"cast('{text}' as {kind})"


def main() -> None:
    """Ask Spark and write the file beside this script."""
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    found = []
    for kinds, rows in CASES:
        for row in rows:
            literals = ", ".join(_literal(t, k) for t, k in zip(row, kinds, strict=True))
            value = spark.sql(f"select xxhash64({literals}) as h").first()[0]
            found.append({"types": kinds, "values": row, "hash": value})
    lines = ",\n".join(json.dumps(vector) for vector in found)
    head = f'{{"made_with": "Spark {spark.version}", "seed": 42, "vectors": [\n'
    target = Path(__file__).with_name("xxhash64.json")
    target.write_text(f"{head}{lines}\n]}}\n", encoding="utf-8")
    spark.stop()


if __name__ == "__main__":
    main()
