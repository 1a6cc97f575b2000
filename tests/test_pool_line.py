"""The inner hand-over: threads that take items from a line, sleep, and are woken."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

from hypothesis import given, settings
from hypothesis import strategies as st

from laneway.pool.thread_queue import ThreadQueue
from workbench import DEADLINE, until, wait


class Taken:
    """What threads have done with items; an item that is an event is waited for."""

    def __init__(self) -> None:
        self.items: list[object] = []
        self.names: list[str] = []
        self.crashes: list[BaseException] = []

    def begin(self, name: str) -> Callable[[object], object]:
        def work(item: object) -> None:
            if isinstance(item, Exception):
                raise item
            self.names.append(name)
            self.items.append(item)
            if isinstance(item, threading.Event):
                wait(item)

        return work

    def line(self, size: int) -> ThreadQueue[object]:
        return ThreadQueue([f"hand-{number}" for number in range(size)], self.begin, self.crashes.append)


def has_taken(taken: Taken, number: int) -> bool:
    return len(taken.items) == number


def is_awake(line: ThreadQueue[object], number: int) -> bool:
    return line.active == number


def end(line: ThreadQueue[object]) -> None:
    line.close()
    for thread in line.threads:
        thread.join(DEADLINE)
        assert not thread.is_alive()


@settings(max_examples=20)
@given(st.integers(1, 5), st.lists(st.integers(0, 40), max_size=4))
def test_every_item_is_taken_once_whoever_puts_it(size: int, numbers: list[int]) -> None:
    taken = Taken()
    line = taken.line(size)

    def put(start: int, number: int) -> None:
        for item in range(start, start + number):
            line.put(item)

    producers = [threading.Thread(target=put, args=(1000 * n, number)) for n, number in enumerate(numbers)]
    for producer in producers:
        producer.start()
    for producer in producers:
        producer.join(DEADLINE)

    until(lambda: len(taken.items) == sum(numbers))
    assert sorted(map(str, taken.items)) == sorted(str(1000 * n + i) for n, number in enumerate(numbers) for i in range(number))
    assert len(line.threads) <= size
    end(line)


def test_one_thread_takes_items_in_order() -> None:
    taken = Taken()
    line = taken.line(1)
    for item in range(100):
        line.put(item)

    until(lambda: len(taken.items) == 100)
    assert taken.items == list(range(100))
    end(line)


def test_who_slept_last_is_woken_first() -> None:
    taken = Taken()
    line = taken.line(3)
    events = [threading.Event() for _ in range(3)]
    for number, event in enumerate(events, 1):
        line.put(event)
        until(partial(has_taken, taken, number))
    for number, event in enumerate(events, 1):
        event.set()
        until(partial(is_awake, line, 3 - number))

    for _ in range(5):
        before = len(taken.items)
        line.put("next")
        until(partial(has_taken, taken, before + 1))
        until(partial(is_awake, line, 0))

    assert taken.names == ["hand-0", "hand-1", "hand-2", *["hand-2"] * 5]
    end(line)


class Trap(list[threading.Lock]):
    """A list of idle threads in which something happens right after one has lain down."""

    def __init__(self, happens: Callable[[], object]) -> None:
        super().__init__()
        self.happens = happens

    def append(self, bed: threading.Lock) -> None:
        super().append(bed)
        happens, self.happens = self.happens, lambda: None
        happens()


def test_an_item_that_comes_while_a_thread_lies_down_is_taken() -> None:
    taken = Taken()
    line = taken.line(1)
    line._idle = Trap(lambda: line._items.append("late"))  # as from one who has looked before, and woke nobody

    line.put("first")

    until(lambda: taken.items == ["first", "late"])
    end(line)


def test_a_thread_that_lies_down_while_the_line_is_closed_ends() -> None:
    taken = Taken()
    line = taken.line(1)
    line._idle = Trap(lambda: setattr(line, "_closed", True))

    line.put("first")

    until(lambda: len(line.threads) == 1)
    line.threads[0].join(DEADLINE)
    assert not line.threads[0].is_alive()


def test_what_nobody_has_taken_can_be_taken_out() -> None:
    taken = Taken()
    line = taken.line(1)
    go = threading.Event()
    for item in (go, "a", "b", "c"):
        line.put(item)
    until(lambda: taken.items == [go])

    assert (line.take_out("b"), line.take_out("b"), line.take_out(go)) == (True, False, False)
    assert line.listed() == ["a", "c"]
    assert line.take_back() == ["a", "c"]
    assert line.waiting == 0
    go.set()
    end(line)
    assert taken.items == [go]


def test_a_closed_line_takes_nothing_more() -> None:
    taken = Taken()
    line = taken.line(1)
    go = threading.Event()
    line.put(go)
    line.put("left")
    until(lambda: taken.items == [go])

    line.close()
    go.set()
    end(line)

    assert taken.items == [go]
    assert line.listed() == ["left"]


def test_work_that_raises_is_told_of() -> None:
    taken = Taken()
    line = taken.line(1)
    error = ValueError("work must not")

    line.put(error)

    until(lambda: taken.crashes == [error])
    end(line)
