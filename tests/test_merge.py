"""Merging, as a table and as laws: whatever the order, nothing is lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
part = st.lists(st.builds(Arrived, scores, st.integers(0, 9), st.sampled_from([b"", b"1", b"2", b"3", b'"x"'])), max_size=8)


@given(part, part)
def test_the_order_of_parts_does_not_matter(a: list[Arrived], b: list[Arrived]) -> None:
    assert merge(a, b) == merge(b, a) == merge([*a, *b])


@given(part, part, part)
def test_how_they_are_put_together_does_not_matter(a: list[Arrived], b: list[Arrived], c: list[Arrived]) -> None:
    assert merge(merge(a, b), c) == merge(a, merge(b, c)) == merge(a, b, c)


@given(part, part)
def test_merging_again_changes_nothing(a: list[Arrived], b: list[Arrived]) -> None:
    merged = merge(a, b)

    assert merge(merged) == merge(merged, merged) == merge(merged, a) == merged


@given(part, part)
def test_nothing_is_lost_and_nothing_made_up(a: list[Arrived], b: list[Arrived]) -> None:
    merged = merge(a, b)

    assert sorted(payload.body for payload in merged) == sorted({payload.body for payload in [*a, *b]})
    for payload in merged:
        equal = [other for other in [*a, *b] if other.body == payload.body]
        assert (payload.score, payload.arrival) == (max(one.score for one in equal), min(one.arrival for one in equal))


@given(part, part)
def test_the_oldest_comes_first_and_ties_go_by_arrival(a: list[Arrived], b: list[Arrived]) -> None:
    places = [(payload.score, payload.arrival) for payload in merge(a, b)]

    assert places == sorted(places)
