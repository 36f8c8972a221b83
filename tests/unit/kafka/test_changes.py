"""What records change: rows that the table takes, and keys that are removed, in their order."""

from __future__ import annotations

from tests.support.records import column, places, read, spec_of


def test_rows_that_the_table_would_refuse_are_dead_letters() -> None:
    spec = spec_of("id double, s struct<x: int>, n string not null", "id", ordering="id")
    rows = [{"id": 1, "n": "a"}, {"id": None, "n": "b"}, {"id": 2}, {"n": "c"}]
    changes = read(spec, *((each,) for each in rows), (b'{"id": NaN, "n": "d"}',), (b"?",))
    assert places(changes) == [1, 2, 3, 4, 5]
    assert all(each.reason for each in changes.bad)
    assert column(changes, "n") == ["a"]


def test_a_null_deep_in_a_required_field_is_a_dead_letter() -> None:
    spec = spec_of("id int, s struct<x: array<struct<y: int not null>>>")
    good, bad = {"s": {"x": [{"y": 1}]}}, {"s": {"x": [{"y": 2}, {}]}}
    changes = read(spec, (good,), (bad,), ({},), (bad,), (good,))
    assert places(changes) == [1, 3]
    assert column(changes, "s") == [good["s"], None, good["s"]]
    assert "s.x.element.y" in changes.bad[0].reason


def test_removals_and_rows_keep_the_order_of_the_topic_around_bad_records() -> None:
    spec = spec_of("id int, n string", "id")
    changes = read(
        spec,
        ({"id": 1, "n": "a"},),
        (None, 1),
        (b"?",),
        ({"id": 2, "n": "b"},),
        ({"id": 1, "n": "c"},),
        (None, "x"),
        (None, {"id": 2}),
        (None, b""),
        ({"id": 3, "n": "d"},),
    )
    assert places(changes) == [2, 5, 7]
    assert column(changes, "n") == ["c", "d"]
    assert changes.removals is not None
    assert sorted(changes.removals["id"].to_pylist()) == [1, 2]


def test_records_that_remove_all_leave_no_rows() -> None:
    changes = read(spec_of("id int, n string", "id"), (None, 1), (None, 2))
    assert (changes.rows.num_rows, places(changes)) == (0, [])
    assert changes.removals is not None


def test_a_record_without_value_is_a_dead_letter_where_nothing_can_be_removed() -> None:
    changes = read(spec_of("id int"), ({"id": 1},), (None, 1))
    assert (places(changes), column(changes, "id")) == ([1], [1])
