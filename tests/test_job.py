"""Ids that are unique and in order, and the checks of what names a job, a queue and a lane."""

from __future__ import annotations

import enum
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import laneway.ids
from laneway.core.job import STATES, check_id, check_lane, check_priority, check_queue
from laneway.ids import new_id


class Region(str, enum.Enum):  # noqa: UP042 - as many programs have it; its str() is "Region.NORTH"
    NORTH = "north"


class Level(enum.IntEnum):
    HIGH = 7


def test_an_id_is_20_letters_and_digits_that_are_read_aloud_without_mistakes() -> None:
    for _ in range(1000):
        assert re.fullmatch("[0-9a-hjkmnp-tv-z]{20}", new_id())


def test_an_id_passes_its_own_check() -> None:
    made = new_id()
    assert check_id(made) == made


def test_ids_increase_within_a_process() -> None:
    ids = [new_id() for _ in range(20_000)]
    assert ids == sorted(set(ids))


def test_ids_increase_though_the_clock_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    first = new_id()
    monkeypatch.setattr(laneway.ids, "now_micros", lambda: 5)
    assert first < new_id() < new_id()


def test_ids_of_two_processes_are_in_the_order_of_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def made_at(now: int) -> str:
        monkeypatch.setattr(laneway.ids, "now_micros", lambda: now)
        monkeypatch.setattr(laneway.ids, "_last", 0)  # as in a process that has made none yet
        return new_id()

    moments = [1, 1_000, 1_700_000_000_000_000, 1_700_000_000_000_001, 4_000_000_000_000_000]
    ids = [made_at(now) for now in moments]
    assert ids == sorted(ids)


def test_ids_made_at_the_same_moment_by_two_processes_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(laneway.ids, "now_micros", lambda: 1_700_000_000_000_000)
    ids = set()
    for _ in range(1000):
        monkeypatch.setattr(laneway.ids, "_last", 0)
        ids.add(new_id())
    assert len(ids) == 1000


def test_ids_are_unique_over_threads() -> None:
    start = threading.Barrier(8)

    def make() -> list[str]:
        start.wait(10)
        return [new_id() for _ in range(5_000)]

    with ThreadPoolExecutor(8) as pool:
        batches = [future.result() for future in [pool.submit(make) for _ in range(8)]]
    assert all(batch == sorted(batch) for batch in batches)
    assert len({made for batch in batches for made in batch}) == 40_000


FORK = """
import os, signal, sys, threading
from laneway.ids import new_id

def child_ids(count):
    '''Fork, and return what the child made; a child that is stuck is ended by its alarm.'''
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(3)
        os.write(writing, " ".join(new_id() for _ in range(count)).encode())
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:
        ids = pipe.read().decode().split()
    if os.waitpid(pid, 0)[1]:
        sys.exit("a forked child could make no id")
    return ids
"""


def run(program: str) -> str:
    """Run a program in a process of its own. Forking beside threads is what it is about: that warning is none here."""
    command = [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_ids_are_unique_after_a_fork() -> None:
    program = FORK + "new_id(); ids = child_ids(1000) + child_ids(1000) + [new_id() for _ in range(1000)]; print(len(set(ids)))"
    assert run(program) == "3000\n"


def test_a_fork_while_another_thread_makes_an_id_leaves_the_child_able_to() -> None:
    program = f"""{FORK}
import laneway.ids
inside, go_on, clock = threading.Event(), threading.Event(), laneway.ids.now_micros
def slow_clock():
    inside.set()
    go_on.wait(30)
    return clock()
laneway.ids.now_micros = slow_clock
thread = threading.Thread(target=new_id)
thread.start()
inside.wait(30)
laneway.ids.now_micros = clock
try:
    print(len(child_ids(1)))
finally:
    go_on.set()
"""
    assert run(program) == "1\n"


def test_states_are_those_of_a_job_in_the_store() -> None:
    assert STATES == ("scheduled", "ready", "retrying", "blocked", "running", "dead")


@pytest.mark.parametrize("value", ["a", "mail-42", "A_z-9", "x" * 100])
def test_an_id_is_letters_digits_dash_and_underscore(value: str) -> None:
    assert check_id(value) == value


@pytest.mark.parametrize("value", ["", "a/b", "a b", "a.b", "é", "a\n", "x" * 101, 42, None, b"a"])
def test_any_other_id_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="not an id: use 1 to 100 letters, digits, - and _"):
        check_id(value)


@pytest.mark.parametrize("value", ["default", "mail-io", "shop.mail:vip_1", "q" * 100])
def test_a_queues_name_may_have_dots_and_colons(value: str) -> None:
    assert check_queue(value) == value


@pytest.mark.parametrize("value", ["", "a/b", "a b", "a\n", "q" * 101, "größe", 1, None])
def test_any_other_name_of_a_queue_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="not a name for a queue: use 1 to 100 letters, digits"):
        check_queue(value)


@pytest.mark.parametrize(
    ("value", "key"),
    [
        ("order-7", "order-7"),
        ("Größe 42 / rot", "Größe 42 / rot"),
        ("k" * 500, "k" * 500),
        (7, "7"),
        (-7, "-7"),
        (10**30, "1" + "0" * 30),
        (Level.HIGH, "7"),
        (Region.NORTH, "north"),
    ],
)
def test_a_lanes_key_is_a_string_or_an_integers_decimal_text(value: object, key: str) -> None:
    found = check_lane(value)
    assert found == key
    assert type(found) is str


@pytest.mark.parametrize("value", [True, False, None, 1.0, b"order", ("a",), ["a"], object()])
def test_nothing_else_is_a_lanes_key(value: object) -> None:
    with pytest.raises(ValueError, match="not a key for a lane: use a string or an integer"):
        check_lane(value)


@pytest.mark.parametrize(
    "value",
    ["", "k" * 501, "a\0b", "a\nb", "\ud800", pytest.param(10**600, id="601 digits"), pytest.param(10**5000, id="5,001 digits")],
)
def test_a_lanes_key_is_printable_and_not_too_long(value: object) -> None:
    with pytest.raises(ValueError, match="not a key for a lane: use 1 to 500 printable characters"):
        check_lane(value)


@pytest.mark.parametrize("value", [-100, -1, 0, 1, 100, Level.HIGH])
def test_a_priority_is_a_whole_number_from_minus_100_to_100(value: int) -> None:
    assert check_priority(value) == value
    assert type(check_priority(value)) is int


@pytest.mark.parametrize("value", [-101, 101, 1.0, True, "high", None])
def test_any_other_priority_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="not a priority: use a whole number from -100"):
        check_priority(value)
