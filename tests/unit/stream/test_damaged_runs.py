"""Rows that writers staged for the coordinator to merge, and that are not as they were."""

from __future__ import annotations

import pytest

from plait import CorruptMetadataError
from tests.support.stream_group import require_read_again
from tests.unit.stream.conftest import Make


@pytest.mark.parametrize("harm", ["missing", "cut", "rubbish"])
def test_a_run_that_is_not_as_it_was_is_given_up_and_read_again(make: Make, harm: str) -> None:
    """Never wrong rows, none is lost, and the error names the file (INV-04, INV-09)."""
    group = make("a", "b", keyed=True)
    group.take("a", 10)
    group.take("b", 10)
    group.turn()
    store = group.table._handle.store
    run = next(info.path for info in store.list("data") if ".run." in info.path)
    if harm == "missing":
        store.delete([run])
    else:
        store.put(run, (store.find(run) or b"")[:-20] if harm == "cut" else b"rubbish")
    with pytest.raises(CorruptMetadataError) as error:
        group.coordinator.complete()
    assert error.value.path == run
    require_read_again(group)
