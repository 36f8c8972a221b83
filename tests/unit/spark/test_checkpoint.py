"""The offsets in a query's checkpoint: read where they can be, and never those of another query."""

from __future__ import annotations

from pathlib import Path

import pytest

from plait.errors import OptionError
from plait.model.decision import Span
from plait.model.store_address import StoreAddress
from plait.spark.checkpoint import QueryCheckpoint, name_of

TABLE = StoreAddress("/somewhere/table")


def make(root: Path, *batches: list[str], query: str = "q", form: str = "v1") -> QueryCheckpoint:
    (root / "offsets").mkdir()
    (root / "metadata").write_text(f'{{"id":"{query}"}}')
    for number, lines in enumerate(batches):
        (root / "offsets" / str(number)).write_text("\n".join([form, "{}", *lines]))
    return QueryCheckpoint.at(str(root), TABLE)


def test_a_batch_reaches_from_the_end_of_the_one_before_to_its_own(tmp_path: Path) -> None:
    found = make(tmp_path, ['{"a":1}', "-"], ['{"a":5}', "7"])
    assert found.find_query() == "q"
    assert found.find_offsets("q", 0) == (Span("0", "", '{"a":1}'), Span("1", "", ""))
    assert found.find_offsets("q", 1) == (Span("0", '{"a":1}', '{"a":5}'), Span("1", "", "7"))


def test_what_cannot_be_told_is_left_out(tmp_path: Path) -> None:
    """A missing batch, and no checkpoint at all."""
    found = make(tmp_path, ["1"], ["2", "3"])
    assert found.find_offsets("q", 2) == ()
    assert found.find_offsets("q", 1) == (), "the number of sources changed"
    (tmp_path / "offsets" / "0").write_bytes(b"\xff")
    assert found.find_offsets("q", 0) == ()
    nowhere = QueryCheckpoint.at(str(tmp_path / "nowhere"), TABLE)
    assert (nowhere.find_query(), nowhere.find_offsets("q", 0)) == (None, ())


def test_the_checkpoint_of_another_query_is_refused_by_name(tmp_path: Path) -> None:
    """Its offsets would be wrong, and without them nobody would notice that they are missing."""
    found = make(tmp_path, ["1"])
    with pytest.raises(OptionError, match="is the checkpoint of query q, not of other"):
        found.find_offsets("other", 0)
    assert found.find_offsets("", 0) != (), "nobody knows whose batch it is"


@pytest.mark.parametrize(("form", "offset"), [("v2", "1"), ("", "1"), ("v1", "x" * 70_000)])
def test_a_form_that_is_not_known_and_offsets_that_are_too_large_are_left_out(
    tmp_path: Path, form: str, offset: str
) -> None:
    assert make(tmp_path, [offset], form=form).find_offsets("q", 0) == ()


@pytest.mark.parametrize("place", ["hdfs://host/c", "s3a://bucket/c", "dbfs:/c", "s3a://[bad/c"])
def test_a_checkpoint_elsewhere_is_not_asked_for(place: str) -> None:
    """Only where the table is: nobody gave the credentials of another store."""
    assert QueryCheckpoint.at(place, TABLE).store is None
    assert QueryCheckpoint.at(place, TABLE).find_offsets("q", 0) == ()


@pytest.mark.parametrize(
    ("place", "name"),
    [
        ("/data/c", "/data/c"),
        ("file:/data/c/", "/data/c"),
        ("file:///data/c", "/data/c"),
        ("checkpoints//c/", "checkpoints/c"),
        ("s3a://bucket/c/", "s3a://bucket/c"),
        ("hdfs://user:secret@host:8020/c", "hdfs://host:8020/c"),
        ("s3a://[bad/c", "s3a://[bad/c"),
    ],
)
def test_a_stream_is_called_by_the_place_of_its_checkpoint(place: str, name: str) -> None:
    assert name_of(place) == name
