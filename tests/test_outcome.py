"""Outcomes: an error becomes text, whatever its own methods do."""

from __future__ import annotations

from typing import Never

import msgspec
import pytest

from laneway.core.outcome import MESSAGE_LIMIT, TRACEBACK_LIMIT, Cancelled, Dead, Done, ErrorInfo, Retrying, Snoozed
from laneway.errors import BadArguments, LanewayError, StoreBusy, did_you_mean


class Unspeakable(Exception):
    """An error whose text cannot be had."""

    def __init__(self, trouble: BaseException) -> None:
        self.trouble = trouble

    def __str__(self) -> str:
        raise self.trouble

    __repr__ = __str__


class Wordless(Exception):
    """An error whose text is none."""

    def __str__(self) -> str:
        return 5  # type: ignore[return-value]  # noqa: PLE0307 - the mistake


def raised(error: BaseException) -> BaseException:
    """Return an error that has been raised, so that it has a traceback."""

    def where_it_happened() -> Never:
        raise error

    try:
        where_it_happened()
    except BaseException as caught:  # noqa: BLE001 - any error is what this is about
        return caught


def described(error: BaseException) -> ErrorInfo | None:
    """Describe an error; None if that raises what would end the test run itself."""
    try:
        return ErrorInfo.of(error)
    except BaseException:  # noqa: BLE001 - SystemExit and KeyboardInterrupt are among them
        return None


def test_an_error_is_its_class_its_message_and_where_it_happened() -> None:
    info = ErrorInfo.of(raised(ValueError("no such user")))
    assert (info.kind, info.message, info.at, info.attempt) == ("ValueError", "no such user", 0, 0)
    assert "where_it_happened" in info.traceback
    assert info.traceback.endswith("ValueError: no such user\n")


def test_a_class_of_a_module_is_named_with_it() -> None:
    assert ErrorInfo.of(BadArguments("no")).kind == "laneway.errors.BadArguments"


def test_the_cause_is_in_the_traceback() -> None:
    error = RuntimeError("outer")
    error.__cause__ = raised(KeyError("inner"))
    text = ErrorInfo.of(raised(error)).traceback
    assert text.index("inner") < text.index("outer")


@pytest.mark.parametrize("trouble", [ValueError("x"), RecursionError(), SystemExit(1), KeyboardInterrupt(), GeneratorExit()])
def test_an_error_whose_str_raises_is_described_all_the_same(trouble: BaseException) -> None:
    info = described(raised(Unspeakable(trouble)))
    assert info is not None, "it raised itself"
    assert info.kind.endswith("Unspeakable")
    assert type(trouble).__name__ in info.message
    assert "where_it_happened" in info.traceback


def test_an_error_whose_str_is_no_text_is_described_all_the_same() -> None:
    info = ErrorInfo.of(raised(Wordless()))
    assert "TypeError" in info.message
    assert "where_it_happened" in info.traceback


def test_an_error_caused_by_one_whose_str_raises_is_described_all_the_same() -> None:
    error = RuntimeError("outer")
    error.__cause__ = Unspeakable(ValueError("x"))
    info = ErrorInfo.of(raised(error))
    assert info.message == "outer"
    assert "where_it_happened" in info.traceback


def test_lone_surrogates_are_replaced_since_they_have_no_bytes() -> None:
    info = ErrorInfo.of(raised(ValueError("bad \ud800 name")))
    assert info.message == "bad ? name"
    assert msgspec.json.decode(msgspec.json.encode(info), type=ErrorInfo) == info


def test_a_huge_message_is_cut_and_its_beginning_kept() -> None:
    info = ErrorInfo.of(raised(ValueError("start " + "x" * 1_000_000)))
    assert len(info.message) == MESSAGE_LIMIT
    assert info.message.startswith("start x")
    assert len(info.traceback) <= TRACEBACK_LIMIT


def test_a_huge_message_does_not_push_the_stack_out_of_the_traceback() -> None:
    info = ErrorInfo.of(raised(ValueError("x" * 1_000_000)))
    assert "where_it_happened" in info.traceback


def test_a_long_traceback_is_cut_and_its_end_kept() -> None:
    error: BaseException = KeyError("first")
    for number in range(500):
        following = RuntimeError(f"error {number}")
        following.__cause__ = raised(error)
        error = following
    info = ErrorInfo.of(raised(error))
    assert len(info.traceback) <= TRACEBACK_LIMIT
    assert info.traceback.endswith("RuntimeError: error 499\n")


def test_a_deep_group_of_errors_is_described_all_the_same() -> None:
    error: Exception = ValueError("innermost")
    for _ in range(3_000):
        error = ExceptionGroup("group", [error])
    info = ErrorInfo.of(raised(error))
    assert info.kind == "ExceptionGroup"
    assert "where_it_happened" in info.traceback


def test_outcomes_have_the_names_of_the_glossary() -> None:
    names = [kind.name for kind in (Done, Retrying, Snoozed, Dead, Cancelled)]
    assert names == ["done", "retrying", "snoozed", "dead", "cancelled"]


def test_an_errors_docstring_is_its_default_message_and_facts_are_attributes() -> None:
    error = StoreBusy(pid=42)
    assert str(error) == StoreBusy.__doc__
    assert error.pid == 42  # type: ignore[attr-defined]
    assert isinstance(error, LanewayError)


def test_the_nearest_known_name_is_proposed_if_one_is_near() -> None:
    assert did_you_mean("quene", ["queue", "lane"]) == ' Did you mean "queue"?'
    assert did_you_mean("zebra", ["queue", "lane"]) == ""
