"""The checker of the random test of collectors: it lets pass what may happen, and catches each kind of wrong."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from collect_evidence import RECORD, SETTLED, Findings, Given, Record, Rules, Sent, append, check, key, read
from fleet_evidence import Fault, Mark

MS = 1_000_000
SUPERVISOR, ZYGOTE, ANN, BOB, EVE = 100, 101, 102, 103, 104
RULES = {
    "all": Rules(max_lanes=2, max_payloads=0, retries=1, backoff=20 * MS, snooze=10 * MS),
    "two": Rules(max_lanes=2, max_payloads=2, retries=1, backoff=20 * MS, snooze=10 * MS),
}


class Story:
    """Evidence made by hand: times are milliseconds, payloads are letters with a digit for their score, such as `x1`."""

    def __init__(self, collector: str = "all") -> None:
        self.sent: list[Sent] = []
        self.records: list[Record] = []
        self.faults: list[Fault] = []
        self.dead: list[tuple[str, str]] = []
        self._collector = collector
        self._token = 0

    def send(
        self, at: float, payloads: str, lane: str = "a", *, takes: float = 0.5, scored: bool = True, run_after: int = 0
    ) -> Story:
        times = (round(at * MS), round((at + takes) * MS), run_after * MS)
        for one in payloads.split():
            self.sent.append(Sent(key(self._collector, lane), one[0], float(one[1:]) if scored else None, *times))
        return self

    def run(
        self, begin: float, end: float | None, payloads: str, said: str = "done", pid: int = ANN, *, lane: str = "a",
        attempt: int = 1, token: int = 0, worker: int = 0,
    ) -> Story:  # fmt: skip
        self._token = token or self._token + 1
        given = tuple(Given(one[0], float(one[1:])) for one in payloads.split())
        who = (pid, worker or pid, ZYGOTE, SUPERVISOR)
        for what, at in (("start", begin), ("end", end)):
            if at is not None:
                mark = Mark(what, key(self._collector, lane), lane, 0, self._token, attempt, *who, round(at * MS))
                self.records.append(Record(mark, "-", given) if what == "start" else Record(mark, said))
        return self

    def kill(self, at: float, *pids: int, role: str = "worker") -> Story:
        self.faults.append(Fault("kill", role, frozenset(pids), round(at * MS), round((at + 1) * MS)))
        return self

    def died(self, body: str, lane: str = "a") -> Story:
        self.dead.append((key(self._collector, lane), body))
        return self

    def check(self, slots: int = 2) -> Findings:
        records = sorted(self.records, key=lambda record: record.mark.at)
        return check(self.sent, records, self.faults, self.dead, RULES, slots)

    def mistakes(self, slots: int = 2) -> list[str]:
        return self.check(slots).mistakes

    def mistake(self, slots: int = 2) -> str:
        (found,) = self.mistakes(slots)
        return found


@pytest.fixture
def story() -> Story:
    return Story()


@pytest.fixture
def two() -> Story:
    """Of a collector that gets two payloads of a lane at most, with the store's own scores."""
    return Story("two")


# -- what may happen ---------------------------------------------------------------------------------------------


def test_payloads_that_run_once_and_in_order_are_fine(story: Story) -> None:
    story.send(0, "x2 y1").send(0, "x1", "b").run(5, 9, "y1 x2").run(5, 9, "x1", lane="b", token=1)
    found = story.check()
    assert (found.mistakes, found.done, found.tokens, found.repeats) == ([], (3, 3), {1}, [])


def test_equal_payloads_are_one_with_the_larger_score(story: Story) -> None:
    assert story.send(0, "x2 y1 x0 y3").run(5, 9, "x2 y3").mistakes() == []


def test_equal_payloads_are_one_with_the_earlier_arrival(story: Story) -> None:
    assert story.send(0, "x1 y2 x2").run(5, 9, "x2 y2").mistakes() == []


def test_ties_go_by_arrival(story: Story) -> None:
    assert story.send(0, "z1 x1 y1").run(5, 9, "z1 x1 y1").mistakes() == []


def test_what_comes_during_a_run_runs_next(story: Story) -> None:
    found = story.send(0, "x1").run(5, 9, "x1").send(6, "x1 y0").run(10, 12, "y0 x1").check()
    assert (found.mistakes, found.during) == ([], 1)


@pytest.mark.parametrize("given", ["x1 y2", "x1"])
def test_an_enqueue_that_overlaps_a_claim_may_come_before_or_after_it(story: Story, given: str) -> None:
    story.send(0, "x1").send(3, "y2", takes=4).run(5, 9, given)
    assert story.mistakes() == [] if given == "x1 y2" else story.run(10, 12, "y2").mistakes() == []


def test_what_waits_in_a_worker_may_have_missed_an_enqueue(story: Story) -> None:
    assert story.send(0, "x1").send(2, "y2").run(5, 9, "x1").run(10, 12, "y2").mistakes() == []


def test_a_failed_run_is_repeated_with_what_gathered(story: Story) -> None:
    story.send(0, "x1").run(5, 9, "x1", "failed").send(6, "y0").run(30, 31, "y0 x1", attempt=2)
    assert story.mistakes() == []


def test_the_first_to_arrive_dies_when_no_retry_is_left(story: Story) -> None:
    story.send(0, "x2 y1").run(5, 9, "y1 x2", "failed").run(30, 31, "y1 x2", "failed", attempt=2)
    assert story.run(32, 33, "y1").died("x").mistakes() == []


def test_another_death_than_that_of_the_first_to_arrive_is_noticed(story: Story) -> None:
    story.send(0, "x2 y1").run(5, 9, "y1 x2", "failed").run(30, 31, "y1 x2", "failed", attempt=2)
    assert story.run(32, 33, "x2").died("y").mistakes()


def test_one_that_dies_while_its_equal_gathers_runs_again(story: Story) -> None:
    story.send(0, "x1").run(5, 9, "x1", "failed").run(30, 34, "x1", "failed", attempt=2).send(32, "x3")
    assert story.run(35, 36, "x3").died("x").mistakes() == []


def test_a_snoozed_lane_counts_no_attempt(story: Story) -> None:
    assert story.send(0, "x1").run(5, 9, "x1", "snoozed").run(20, 21, "x1").mistakes() == []


def test_a_cancelled_run_is_over_and_what_gathered_goes_on(story: Story) -> None:
    assert story.send(0, "x1").run(5, 9, "x1", "cancelled").send(6, "y1").run(10, 12, "y1").mistakes() == []


def test_a_run_that_was_killed_is_repeated_with_what_gathered(story: Story) -> None:
    found = story.send(0, "x1").run(5, None, "x1").send(6, "y0").kill(8, ANN).run(12, 15, "y0 x1", pid=BOB).check()
    assert (found.mistakes, found.cut, found.done) == ([], 1, (2, 2))
    ((fault, run, again),) = [(repeat.fault, repeat.run, repeat.again) for repeat in found.repeats]
    assert (fault.role, run.start.pid, again.start.pid) == ("worker", ANN, BOB)


@pytest.mark.parametrize("said", ["done", "failed", "cancelled"])
def test_a_run_that_had_ended_and_was_not_settled_is_repeated(story: Story, said: str) -> None:
    found = story.send(0, "x1").run(5, 7, "x1", said).kill(8, ANN).run(12, 15, "x1", pid=BOB).check()
    assert (found.mistakes, len(found.repeats)) == ([], 1)


@pytest.mark.parametrize(("begin", "repeats"), [(12, 1), (30, 0)])
def test_whether_a_snoozed_run_was_repeated_can_be_told_only_if_it_came_soon(story: Story, begin: int, repeats: int) -> None:
    found = story.send(0, "x1").run(5, 7, "x1", "snoozed").kill(8, ANN).run(begin, begin + 3, "x1", pid=BOB).check()
    assert (found.mistakes, len(found.repeats)) == ([], repeats)


def test_a_run_that_was_killed_after_it_was_settled_is_not_repeated(story: Story) -> None:
    found = story.send(0, "x1").run(5, 7, "x1").kill(8, ANN).send(9, "x1 y1", "b").run(12, 15, "x1 y1", pid=BOB, lane="b").check()
    assert (found.mistakes, found.repeats, found.done) == ([], [], (2, 3))


def test_with_max_payloads_the_rest_comes_next(two: Story) -> None:
    two.send(0, "x y z", scored=False).run(5, 9, "x1 y2").send(6, "x", scored=False).run(10, 12, "z3 x4")
    assert two.mistakes() == []


def test_with_max_payloads_a_failed_run_goes_together_with_the_rest(two: Story) -> None:
    two.send(0, "x y z", scored=False).run(5, 9, "x1 y2", "failed").run(30, 31, "x1 y2", attempt=2).run(32, 33, "z3")
    assert two.mistakes() == []


# -- what must not -----------------------------------------------------------------------------------------------


def test_a_payload_that_never_ran_is_lost(story: Story) -> None:
    assert story.send(0, "x1").send(0, "y1", "b").run(5, 9, "x1").mistake() == "all/b lost ['y']: neither handled nor dead"


def test_one_that_came_during_a_run_of_its_equal_and_was_swallowed_is_lost(story: Story) -> None:
    assert "lost ['x']" in story.send(0, "x1").run(5, 9, "x1").send(6, "x1").mistake()


def test_one_that_was_swallowed_is_noticed_though_the_lane_goes_on(story: Story) -> None:
    story.send(0, "x1").run(5, 9, "x1").send(6, "x1 y2").run(10, 12, "y2")
    assert "was not given ['x'], which waited" in story.mistake()


def test_one_that_was_swallowed_is_noticed_though_a_later_one_is_handled(story: Story) -> None:
    story.send(0, "x1").run(5, 9, "x1").send(6, "x1").send(20, "y2").run(30, 31, "y2").send(40, "x1").run(50, 51, "x1")
    assert "no enqueue" not in story.mistakes()[0]


def test_a_retry_that_forgot_what_gathered_is_noticed(story: Story) -> None:
    story.send(0, "x1").run(5, 9, "x1", "failed").send(6, "y0").run(30, 31, "x1", attempt=2).run(32, 33, "y0")
    assert "was not given ['y'], which waited" in story.mistake()


def test_a_killed_run_whose_payloads_are_forgotten_is_noticed(story: Story) -> None:
    story.send(0, "x1").run(5, None, "x1").send(6, "y0").kill(8, ANN).run(12, 15, "y0", pid=BOB)
    assert "was not given ['x']" in story.mistake()


def test_a_cut_run_that_never_comes_back_is_lost(story: Story) -> None:
    story.send(0, "x1").run(5, None, "x1").kill(8, ANN).send(9, "x1", "b").run(12, 15, "x1", pid=BOB, lane="b")
    assert "all/a lost ['x']" in story.mistake()


def test_a_repeat_without_a_fault_is_noticed(story: Story) -> None:
    assert "no fault explains it" in story.send(0, "x1").run(5, 9, "x1").run(10, 12, "x1").mistake()


@pytest.mark.parametrize(("at", "pid"), [(8, EVE), (13, ANN), (10 + SETTLED / MS, ANN)])
def test_a_kill_of_another_process_or_at_another_time_explains_no_repeat(story: Story, at: float, pid: int) -> None:
    again = 12 if at < 20 else at + 2
    story.send(0, "x1").run(5, 9, "x1").run(again, again + 3, "x1", pid=BOB).kill(at, pid)
    assert "no fault explains it" in story.mistake()


def test_a_payload_nobody_enqueued_is_noticed(story: Story) -> None:
    assert "['y'], which nobody had enqueued" in story.send(0, "x1").run(5, 9, "x1 y2").mistake()


def test_a_lane_nobody_enqueued_into_is_noticed(story: Story) -> None:
    assert "which nobody had enqueued" in story.run(5, 9, "x1").mistake()


def test_a_payload_that_ran_before_it_was_enqueued_is_noticed(story: Story) -> None:
    assert "which nobody had enqueued" in story.run(5, 9, "x1").send(10, "x1").mistake()


def test_an_empty_run_is_noticed(story: Story) -> None:
    assert story.send(0, "x1").run(5, 9, "x1").run(10, 11, "").mistakes()


def test_equal_payloads_in_one_run_are_noticed(story: Story) -> None:
    assert "['x'] more than once" in story.send(0, "x1 x2").run(5, 9, "x1 x2").mistake()


def test_the_wrong_order_of_scores_is_noticed(story: Story) -> None:
    assert "not in the order of their scores" in story.send(0, "x1 y2").run(5, 9, "y2 x1").mistake()


def test_ties_that_do_not_go_by_arrival_are_noticed(story: Story) -> None:
    assert "should have had [('x', 1.0), ('y', 1.0)]" in story.send(0, "x1 y1").run(5, 9, "y1 x1").mistake()


def test_the_smaller_score_of_equal_ones_is_noticed(story: Story) -> None:
    story.send(0, "y1").run(2, 6, "y1").send(3, "x1 x2").run(7, 9, "x1")
    assert "should have had [('x', 2.0)]" in story.mistake()


def test_the_stores_own_scores_keep_the_order_of_arrival(two: Story) -> None:
    assert "should have had" in two.send(0, "x y", scored=False).run(5, 9, "y1 x2").mistake()


def test_more_than_max_payloads_are_noticed(two: Story) -> None:
    assert two.send(0, "x y z", scored=False).run(5, 9, "x1 y2 z3").mistakes()


def test_others_than_the_oldest_of_max_payloads_are_noticed(two: Story) -> None:
    assert two.send(0, "x y z", scored=False).run(5, 9, "y2 z3").run(10, 12, "x1").mistakes()


@pytest.mark.parametrize(("said", "attempt"), [("failed", 1), ("snoozed", 2), ("failed", 3)])
def test_a_wrong_count_of_attempts_is_noticed(story: Story, said: str, attempt: int) -> None:
    story.send(0, "x1").run(5, 9, "x1", said).run(30, 31, "x1", attempt=attempt)
    assert f"is attempt {attempt}, and should be" in story.mistake()


def test_a_lost_worker_that_counts_as_an_attempt_is_noticed(story: Story) -> None:
    story.send(0, "x1").run(5, None, "x1").kill(8, ANN).run(12, 15, "x1", pid=BOB, attempt=2)
    assert "is attempt 2, and should be 1" in story.mistake()


@pytest.mark.parametrize("said", ["failed", "snoozed"])
def test_a_run_that_comes_too_soon_is_noticed(story: Story, said: str) -> None:
    story.send(0, "x1").run(5, 9, "x1", said).run(14, 15, "x1", attempt=2 if said == "failed" else 1)
    assert "too soon" in story.mistake()


def test_run_after_is_of_a_lane_that_does_not_wait(story: Story) -> None:
    story.send(0, "x1", run_after=50).send(1, "y1").run(55, 56, "x1 y1").send(60, "x1").send(61, "y1", run_after=50)
    assert story.run(65, 66, "x1 y1").mistakes() == []


def test_run_after_of_what_comes_during_a_run_is_for_the_next(story: Story) -> None:
    story.send(0, "x1").run(5, 9, "x1").send(6, "y1", run_after=50)
    assert story.run(30, 31, "y1").mistake().endswith("began 26.000 ms too soon")


@pytest.mark.parametrize("first", [50, 0])
def test_a_run_before_its_run_after_is_noticed(story: Story, first: int) -> None:
    story.send(0, "x1", run_after=first).send(0, "y1", run_after=50 - first).run(5, 9, "x1 y1")
    assert story.mistakes() == [] if not first else story.mistake().endswith("began 45.000 ms too soon")


def test_what_gathers_when_one_dies_is_due_at_once(story: Story) -> None:
    story.send(0, "x1").run(5, 9, "x1", "failed").run(30, 34, "x1", "failed", attempt=2).send(32, "y1", run_after=50)
    assert story.run(35, 36, "y1").died("x").mistakes() == []


def test_a_death_of_the_wrong_payload_is_noticed(story: Story) -> None:
    story.send(0, "x1 y2").run(5, 9, "x1 y2", "failed").run(30, 31, "x1 y2", "failed", attempt=2).run(32, 33, "x1").died("y")
    assert "was given ['x'] again" in story.mistake()


def test_a_death_that_takes_an_equal_one_with_it_is_noticed(story: Story) -> None:
    story.send(0, "x1").run(5, 9, "x1", "failed").run(30, 34, "x1", "failed", attempt=2).send(32, "x3").died("x")
    assert "lost ['x']" in story.mistake()


def test_a_dead_one_that_is_not_kept_is_lost(story: Story) -> None:
    story.send(0, "x1").run(5, 9, "x1", "failed").run(30, 31, "x1", "failed", attempt=2)
    assert story.mistake() == "all/a lost ['x'], which should be among the dead"


def test_a_dead_one_that_never_died_is_noticed(story: Story) -> None:
    assert "['x'] among the dead, and no run explains it" in story.send(0, "x1").run(5, 9, "x1").died("x").mistake()


def test_two_runs_of_a_lane_at_once_are_noticed(story: Story) -> None:
    story.send(0, "x1").run(5, 9, "x1").send(6, "y1").run(8, 12, "y1", pid=BOB)
    assert "began while job all/a" in story.mistake()


def test_a_repeat_before_the_first_run_was_killed_is_an_overlap(story: Story) -> None:
    story.send(0, "x1").run(5, None, "x1").run(8, 14, "x1", pid=BOB).kill(10, ANN)
    overlap, model = story.mistakes()
    assert "began while job all/a" in overlap
    assert "was cut" in model


def test_a_run_that_stops_without_a_kill_is_noticed(story: Story) -> None:
    assert "never ended, and nobody killed its process" in story.send(0, "x1").run(5, None, "x1").mistakes()[0]


def test_one_claim_that_runs_twice_is_noticed(story: Story) -> None:
    story.send(0, "x1").run(5, 6, "x1", token=3).run(7, 8, "x1", token=3)
    assert "one claim ran twice" in story.mistakes()[0]


def test_a_stale_claim_is_noticed(story: Story) -> None:
    story.send(0, "x1").run(5, 6, "x1", token=3).send(7, "y1").run(8, 9, "y1", token=2)
    assert "began with a stale claim" in story.mistake()


def test_too_many_lanes_in_a_run_are_noticed(story: Story) -> None:
    for lane in "abc":
        story.send(0, "x1", lane).run(5, 9, "x1", lane=lane, token=1)
    assert story.mistake() == "the run with token 1 had 3 lanes"


def test_a_suspect_that_does_not_run_alone_is_noticed(story: Story) -> None:
    for lane in "ab":
        story.send(0, "x1", lane).run(5, 9, "x1", lane=lane, token=1, pid=EVE, worker=ANN)
    assert story.mistake() == "the run with token 1 was a suspect's, and had 2 lanes"


def test_a_token_of_two_runs_is_noticed(story: Story) -> None:
    for lane, pid in (("a", ANN), ("b", BOB)):
        story.send(0, "x1", lane).run(5, 9, "x1", lane=lane, token=1, pid=pid)
    assert "token 1 was given to several runs" in story.mistake()


def test_more_repeats_than_slots_are_noticed(story: Story) -> None:
    for lane in "abc":
        story.send(0, "x1", lane).run(5, None, "x1", lane=lane)
    story.kill(8, ANN)
    for lane in "abc":
        story.run(12, 15, "x1", lane=lane, pid=BOB)
    assert story.mistakes(slots=3) == []
    assert story.mistake(slots=2) == "3 runs of worker 102 were repeated after the kill of worker, and it had 2 slots"


def test_who_writes_after_its_death_was_not_dead(story: Story) -> None:
    story.send(0, "x1").run(5, 12, "x1").kill(8, ANN)
    assert "after its kill" in story.mistakes()[0]


def test_a_kill_after_all_is_done_shows_nothing(story: Story) -> None:
    assert "it shows nothing" in story.send(0, "x1").run(5, 9, "x1").kill(10, ANN).mistake()


# -- the records -------------------------------------------------------------------------------------------------


def test_a_record_per_lane_says_what_it_was_given(tmp_path: Path) -> None:
    path = tmp_path / "evidence"
    assert read(path) == []
    given = [Given("-", 0.5), Given("9", 1763200000.123456)]
    append(str(path), "start", 17, [("all/a", 1, "-", given), ("all/b", 2, "-", [])])
    append(str(path), "end", 17, [("all/a", 1, "done", []), ("all/b", 2, "failed", [])])
    first, second, *ends = read(path)
    assert path.stat().st_size == 4 * RECORD
    assert (first.mark[:6], first.said, list(first.given)) == (("start", "all/a", "a", 0, 17, 1), "-", given)
    assert (second.mark[:6], second.given) == (("start", "all/b", "b", 0, 17, 2), ())
    assert [(end.mark.what, end.said) for end in ends] == [("end", "done"), ("end", "failed")]
    assert first.mark[6:10] == (os.getpid(), os.getpid(), os.getppid(), os.getsid(0))


def test_a_record_that_is_being_written_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "evidence"
    append(str(path), "start", 17, [("all/a", 1, "-", [])])
    with path.open("ab") as file:
        file.write(b"end all/a")
    assert len(read(path)) == 1
