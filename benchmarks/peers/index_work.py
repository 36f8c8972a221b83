"""One system's part of the comparison of record indexes, in a process of its own.

    python index_work.py hudi|plait PLACE --rows 2000000 [--jar FILE]...

The same steps for both. A small table comes first, so that no figure holds the first use of a code
path. Each line of JSON is a time, or something that was found.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.peers.index_systems import SYSTEMS, Indexed, Row
from benchmarks.peers.work import start

T = TypeVar("T")
LOOK_UPS: Final = (1, 100, 1000)
WARM_ROWS: Final = 40_000
WARM_UPSERTS: Final = {100: 2, 1000: 1}
SMALLEST: Final = 10
"""Smallest queries that are timed."""


def upserts_of(small: int) -> dict[int, int]:
    """Return the sizes of upserts, and how many there are of each."""
    return {100: small, 10_000: max(1, small * 10 // 32)}


def main() -> None:
    """Run one system's part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("system", choices=SYSTEMS)
    parser.add_argument("place", type=Path)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--upserts", type=int, required=True)
    parser.add_argument("--look-ups", type=int, required=True)
    parser.add_argument("--jar", action="append", default=[])
    asked = parser.parse_args()
    kind = SYSTEMS[asked.system]
    spark = start(asked.system, kind.settings(), asked.jar)
    system = kind(asked.place / "tables", spark)
    warm, source = (source_of(asked.place, rows) for rows in (WARM_ROWS, asked.rows))
    Work(system, warm, WARM_UPSERTS, look_ups=1).run()
    upserts = upserts_of(asked.upserts)
    Work(system, source, upserts, look_ups=asked.look_ups, name=asked.system).run()
    spark.stop()


def source_of(place: Path, rows: int) -> Path:
    """Say where the source of this size is."""
    return place / f"index-source-{rows}"


class Work:
    """The steps; they are told to nobody while ``name`` is None."""

    def __init__(
        self,
        system: Indexed,
        source: Path,
        upserts: dict[int, int],
        *,
        look_ups: int,
        name: str | None = None,
    ) -> None:
        self._system, self._source, self._upserts, self._name = system, source, upserts, name
        keys: dict[str, list[list[str]]] = json.loads((source / "keys.json").read_text())
        self._keys = {int(count): each[:look_ups] for count, each in keys.items()}

    def run(self) -> None:
        """Load, look up, upsert, look up again."""
        system, base = self._system, self._source / "base"
        for config in system.configs:
            system.create(config)
            self._time(f"load, {config}", partial(system.load, config, base))
        for _ in range(SMALLEST):
            self._time("smallest query", system.smallest)
        self._look_ups("fresh")
        for size, count in self._upserts.items():
            for at in range(count):
                rows = self._source / f"upsert-{size}-{at}.parquet"
                for config in system.configs:
                    what = f"upsert of {size}, {config}"
                    self._time(what, partial(system.upsert, config, rows))
        self._look_ups("after upserts")
        for config in system.configs:
            found = list(system.totals(config))
            self._say(f"totals, {config}", found=found)
            self._say("same totals", found=found)
            if found != list(system.totals(system.configs[0])):
                message = f"the table {config} differs from {system.configs[0]}"
                raise SystemExit(message)
        for what, value in system.sizes().items():
            self._say(what, found=value)

    def _look_ups(self, when: str) -> None:
        system = self._system
        system.open()
        for count, sets in self._keys.items():
            of = f"{count} keys, {when}"
            rows: list[Row] = []
            places: list[tuple[str, str]] = []
            for keys in sets:
                rows += self._time(f"rows of {of}, opened before", partial(system.rows, keys))
                again = self._time(f"rows of {of}, opened anew", partial(system.rows_anew, keys))
                without = self._time(f"rows of {of}, no index", partial(system.rows_without, keys))
                if not sorted(again) == sorted(without) == sorted(rows[-len(again) :]):
                    message = f"look-ups of {of} differ with and without the index"
                    raise SystemExit(message)
                places += system.places(self._time(f"index of {of}", system.ready(keys)))
                self._time(f"index of {of}, opened anew", system.ready_anew(keys))
            self._say(f"same rows of {of}", found=[len(rows), _digest(rows)])
            self._say(f"same places of {of}", found=[len(places), _digest(places)])
            files = {
                "with": system.files(sets[0]),
                "without": system.files_without(sets[0]),
            }
            self._say(f"files of {of}", found=files)
        system.close()

    def _time(self, what: str, run: Callable[[], T]) -> T:
        begun = time.perf_counter()
        found = run()
        self._say(what, seconds=round(time.perf_counter() - begun, 5))
        return found

    def _say(self, what: str, **told: object) -> None:
        if self._name is not None:
            line = {"system": self._name, "what": what, **told}
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()


def _digest(values: list[Row] | list[tuple[str, str]]) -> str:
    text = json.dumps(sorted(map(list, values)))
    return hashlib.sha256(text.encode()).hexdigest()


if __name__ == "__main__":
    main()
