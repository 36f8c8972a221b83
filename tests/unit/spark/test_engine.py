"""The session that a write without rows works in is an argument of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from plait import OptionError
from tests.integration.spark.tables import arrow_rows, assert_sound, make


@pytest.mark.parametrize("session", ["local[2]", object(), arrow_rows(0, 1, 1)])
def test_what_is_no_session_is_refused_before_anything_is_begun(
    tmp_path: Path, session: object
) -> None:
    table = make(tmp_path / "t")
    table.append(arrow_rows(0, 3, 1))
    with pytest.raises(OptionError, match="session"):
        table.update({"rev": 1}, where="id = 1", spark=session)
    with pytest.raises(OptionError, match="session"):
        table.delete(where="id = 1", spark=session)
    assert table.version == 1
    assert_sound(table)
