"""The events: flights-like JSON objects of eight members, 190 bytes each."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np

_CHUNK = 50_000
_PLACES = ("EWR", "JFK", "LGA", "ORD", "SFO", "IAH", "MIA")


def events(count: int, *, keys: int | None = None) -> Iterator[tuple[bytes, bytes]]:
    """Give keys and values; with ``keys``, so many different ids, each again and again."""
    draw = np.random.default_rng(1)
    for start in range(0, count, _CHUNK):
        stop = min(count, start + _CHUNK)
        ids = np.arange(start, stop) if keys is None else draw.integers(0, keys, stop - start)
        delays, distances = draw.normal(10, 30, stop - start), draw.integers(80, 5000, stop - start)
        for at, (number, delay, distance) in enumerate(
            zip(ids.tolist(), delays.tolist(), distances.tolist(), strict=True)
        ):
            value = {
                "id": number,
                "at": 1_700_000_000_000 + start + at,
                "carrier": f"C{number % 16}",
                "origin": _PLACES[number % 3],
                "dest": _PLACES[at % 7],
                "delay": round(delay, 2),
                "distance": distance,
                "note": f"note-{number:032d}",
            }
            yield str(number).encode(), json.dumps(value).encode()
