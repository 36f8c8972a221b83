"""What an older Plait does, in a process of its own; run by ``test_older.py`` on older code.

python older.py read TABLE ...   what each table shows, or why it is refused, as JSON
python older.py write TABLE      upsert the row that stdin has as JSON
python older.py hold TABLE       begin a write, say so, and end it when stdin ends
"""

from __future__ import annotations

import json
import sys

import pyarrow as pa

from plait import Table, UnsupportedFeatureError
from plait.timeline.codec import KNOWN  # where the older code has it


def read(place: str) -> dict[str, object]:
    """Tell what a table shows, or which features it is refused for."""
    try:
        rows = Table.open(place).scan().to_arrow().to_pylist()
    except UnsupportedFeatureError as error:
        return {"refused": error.facts["features"]}
    shown = [json.dumps(list(row.values()), default=str, ensure_ascii=False) for row in rows]
    return {"rows": sorted(shown)}


def say(text: str) -> None:
    """Write a line that the test reads."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main(what: str, *places: str) -> None:
    """Do one of the things above."""
    if what == "read":
        found = {place: read(place) for place in places}
        say(json.dumps({"known": list(KNOWN), "tables": found}))
        return
    table = Table.open(places[0])
    if what == "write":
        row = json.loads(sys.stdin.read())
        say(str(table.upsert(pa.Table.from_pylist([row], schema=table.schema)).version))
        return
    with table.writer("upsert"):
        say("begun")
        sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
