"""Every file that a decision or a checkpoint names proves that it is the one that is named."""

from __future__ import annotations

from collections.abc import Callable
from unittest import mock

import pytest

from tests.fuzz import exchange

SEED = 36


@pytest.mark.slow
def test_a_file_in_the_place_of_another_is_refused_by_name(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """INV-04, INV-05, INV-07: every reader, ``verify``, and writers that began before."""
    found = list(exchange.run(SEED, each=1))
    with capsys.disabled():
        print(f"\n{capsys.readouterr().out.strip()}")
    assert found == []


def _nameless(_: str) -> str:
    return ""


FAULTS: dict[str, tuple[str, str, Callable[[str], bool]]] = {
    "an entry proves itself to itself": (
        "entry_file",
        "mor",
        lambda path: path.endswith(".dv.bin"),
    ),
    "a sidecar proves itself to itself": (
        "hash",
        "cow",
        lambda path: path.endswith(".keys.bin"),
    ),
    "footers are alike": ("footer", "cow", lambda path: path.endswith(".base.parquet")),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_file_that_proves_itself_to_no_name_is_found(fault: str) -> None:
    module, table_type, of_kind = FAULTS[fault]
    with mock.patch(f"plait.files.{module}.own_name", _nameless):
        table = exchange.Exchanged(table_type)
        pairs = [
            pair
            for kind in table.kinds()
            for pair in exchange.pairs(table, kind, force=False)
            if of_kind(pair[0])
        ]
        assert any(exchange.judge(table_type, *pair, force=False) for pair in pairs)
