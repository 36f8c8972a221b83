"""Records are decoded in pieces that fit the memory; none is lost between two pieces."""

from __future__ import annotations

import pytest

from plait.kafka.client import Clients
from plait.kafka.memory import DECODED, pieces, queue_settings

cimpl = pytest.importorskip("confluent_kafka.cimpl")


@pytest.mark.parametrize(
    ("sizes", "divided"),
    [
        ([], []),
        ([1, 2, 3], [[1, 2, 3]]),
        ([4, 6, 1], [[4, 6], [1]]),
        ([11, 1], [[11], [1]]),
        ([1, 11, 12, 0], [[1], [11], [12], [0]]),
        ([0, 0, 10], [[0, 0, 10]]),
    ],
)
def test_a_piece_is_within_its_size_unless_a_record_is_larger(
    sizes: list[int], divided: list[list[int]]
) -> None:
    records = [cimpl.Message(value=b"x" * size) for size in sizes]
    found = [[len(record.value()) for record in piece] for piece in pieces(records, 10)]
    assert found == divided


def test_the_user_decides_about_the_queue_of_the_client() -> None:
    """The library refuses a fetch that is larger than what it receives at most."""
    defaults = queue_settings(64 << 20)
    assert int(defaults["fetch.max.bytes"]) < DECODED
    Clients("127.0.0.1:1", {"fetch.max.bytes": "90000000"}).consumer(defaults=defaults).close()
