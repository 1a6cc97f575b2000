"""Merging, as a table and as laws: whatever the order, nothing is lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laneway.core.headers import MOST, check_headers, join_headers, read_headers, write_headers
from laneway.core.merge import Arrived, merge

one, two = b"1", b"2"


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([], []),
        ([[]], []),
        ([[Arrived(1, 1, one)]], [Arrived(1, 1, one)]),
        # different ones are all kept, the lowest score first
        ([[Arrived(2, 1, one)], [Arrived(1, 2, two)]], [Arrived(1, 2, two), Arrived(2, 1, one)]),
        # of equal ones the larger score and the earlier arrival, wherever they were
        ([[Arrived(2, 1, one)], [Arrived(1, 2, one)]], [Arrived(2, 1, one)]),
        ([[Arrived(1, 1, one)], [Arrived(2, 2, one)]], [Arrived(2, 1, one)]),
        ([[Arrived(1, 2, one)], [Arrived(2, 1, one)]], [Arrived(2, 1, one)]),
        ([[Arrived(2, 4, one), Arrived(3, 2, one), Arrived(1, 3, one)]], [Arrived(3, 2, one)]),
        ([[Arrived(1, 5, one)], [Arrived(1, 4, one)]], [Arrived(1, 4, one)]),
        # a state that comes back is the newest
        ([[Arrived(1, 1, one), Arrived(2, 2, two), Arrived(3, 3, one)]], [Arrived(2, 2, two), Arrived(3, 1, one)]),
        # ties go by arrival
        ([[Arrived(1, 2, one)], [Arrived(1, 1, two)]], [Arrived(1, 1, two), Arrived(1, 2, one)]),
        # a payload that was left out is one as well
        ([[Arrived(1, 1, b"")], [Arrived(1, 2, b""), Arrived(0, 3, one)]], [Arrived(0, 3, one), Arrived(1, 1, b"")]),
    ],
)
def test_the_table(parts: list[list[Arrived]], expected: list[Arrived]) -> None:
    assert merge(*parts) == expected


scores = st.one_of(st.integers(0, 3).map(float), st.floats(allow_nan=False))
headers = st.lists(st.sampled_from(["{}", '{"a":"1"}', '{"b":"ä"}']), unique=True, max_size=3).map("\n".join)
bodies = st.sampled_from([b"", b"1", b"2", b"3", b'"x"'])
part = st.lists(st.builds(Arrived, scores, st.integers(0, 9), bodies, headers), max_size=8)


def plain(merged: list[Arrived]) -> list[Arrived]:
    """The order of headers is not promised."""
    return [one._replace(headers="\n".join(sorted(one.headers.split("\n")))) for one in merged]


@given(part, part)
def test_the_order_of_parts_does_not_matter(a: list[Arrived], b: list[Arrived]) -> None:
    assert plain(merge(a, b)) == plain(merge(b, a)) == plain(merge([*a, *b]))


@given(part, part, part)
def test_how_they_are_put_together_does_not_matter(a: list[Arrived], b: list[Arrived], c: list[Arrived]) -> None:
    assert plain(merge(merge(a, b), c)) == plain(merge(a, merge(b, c))) == plain(merge(a, b, c))


@given(part, part)
def test_merging_again_changes_nothing(a: list[Arrived], b: list[Arrived]) -> None:
    merged = merge(a, b)

    assert merge(merged) == merge(merged, merged) == merged
    assert plain(merge(merged, a)) == plain(merged)


@given(part, part)
def test_nothing_is_lost_and_nothing_made_up(a: list[Arrived], b: list[Arrived]) -> None:
    merged = merge(a, b)

    assert sorted(payload.body for payload in merged) == sorted({payload.body for payload in [*a, *b]})
    for payload in merged:
        equal = [other for other in [*a, *b] if other.body == payload.body]
        assert (payload.score, payload.arrival) == (max(one.score for one in equal), min(one.arrival for one in equal))
        lines = [line for line in payload.headers.split("\n") if line]
        assert sorted(lines) == sorted({line for one in equal for line in one.headers.split("\n") if line})


@given(part, part)
def test_the_oldest_comes_first_and_ties_go_by_arrival(a: list[Arrived], b: list[Arrived]) -> None:
    places = [(payload.score, payload.arrival) for payload in merge(a, b)]

    assert places == sorted(places)


@pytest.mark.parametrize(
    ("earlier", "later", "expected"),
    [
        ("", "", ""),
        ("{}", "", "{}"),
        ("", "{}", "{}"),
        ("{}", "{}", "{}"),
        ("a\nb", "b\nc\na", "a\nb\nc"),
        ("x" * 9000, "y", "x" * 9000),
        ("", "y" * 9000, "y" * 9000),
        ("x" * 3998, "yy\ny", "x" * 3998 + "\ny"),  # what does not fit is left out
        ("ä" * 1999, "yy\ny", "ä" * 1999 + "\ny"),  # bytes count
    ],
)
def test_joined_headers(earlier: str, later: str, expected: str) -> None:
    assert join_headers(earlier, later) == expected
    assert len(expected.encode()) <= MOST or expected in (earlier, later)


def test_headers_are_read_in_order_equal_ones_once_and_what_is_none_is_left_out() -> None:
    strange = ["", "{", "7", '["a"]', '{"a":1}', "{" * 100_000, "\udcff", '{"a":"1"}\n\n{"b":"2"}', '{"b":"2"}\n{"c":"3"}']

    assert read_headers(strange) == ({"a": "1"}, {"b": "2"}, {"c": "3"})


class Text(str):
    """A string of a user's own."""

    __slots__ = ()


def test_equal_headers_are_written_alike() -> None:
    assert (
        write_headers({"b": "2", "a": "ä\n\0"}) == write_headers({"a": Text("ä\n\0"), "b": "2"}) == r'{"a":"ä\n\u0000","b":"2"}'
    )
    assert write_headers({}) == ""


@pytest.mark.parametrize("wrong", [None, [], "x", {"a": 1}, {1: "a"}, {"a": None}, {"a": "\ud800"}])
def test_headers_are_strings(wrong: object) -> None:
    with pytest.raises(ValueError, match=r"use a dict of strings|use strings|UTF-8"):
        write_headers(wrong)


def test_headers_that_are_strings_pass() -> None:
    assert check_headers({"a": "1"}) == {"a": "1"}
