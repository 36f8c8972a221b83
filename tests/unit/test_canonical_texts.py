"""Canonical texts stand in metadata for ever, so no library decides how they look."""

from __future__ import annotations

import pyarrow as pa
import pytest

from plait.model.value import from_text, to_text

FLOATS = [
    (0.0, "0.0"),
    (-0.0, "-0.0"),
    (0.0001, "0.0001"),
    (0.00001, "1e-05"),
    (1e6, "1000000.0"),
    (1.5e6, "1500000.0"),
    (16777216.0, "16777216.0"),
    (1e15, "1000000000000000.0"),
    (1e16, "1e+16"),
    (-1.5e30, "-1.5e+30"),
    (float("-inf"), "-inf"),
]


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()], ids=str)
@pytest.mark.parametrize(("value", "text"), FLOATS)
def test_text_of_a_float_is_the_same_whatever_numpy_is_installed(value, text, kind) -> None:
    assert to_text(pa.scalar(value, kind), kind) == text
    assert from_text(text, kind).as_py() == pa.scalar(value, kind).as_py()
