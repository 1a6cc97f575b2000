"""The checker of the fault tests: it lets pass what may happen, and catches each kind of wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fleet_evidence import RECORD, SECOND, SETTLED, Fault, Job, Mark, append, check, read

MS = 1_000_000
SUPERVISOR, ZYGOTE, ANN, BOB, EVE = 100, 101, 102, 103, 104


class Story:
    """Evidence made by hand: times are milliseconds, jobs are named by lane and number."""

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self.marks: list[Mark] = []
        self.faults: list[Fault] = []
        self._token = 0

    def accepts(self, *names: str) -> Story:
        for name in names:
            self.jobs[name] = Job(name[0], int(name[1:]))
        return self

    def run(
        self, name: str, start: float, end: float | None, pid: int = ANN, *, token: int = 0, attempt: int = 1,
        worker: int = 0, parent: int = ZYGOTE,
    ) -> Story:  # fmt: skip
        self._token = token or self._token + 1
        for what, at in (("start", start), ("end", end)):
            if at is not None:
                who = (pid, worker or pid, parent, SUPERVISOR)
                self.marks.append(Mark(what, name, name[0], int(name[1:]), self._token, attempt, *who, round(at * MS)))
        return self

    def kill(self, at: float, *pids: int, role: str = "worker", takes: float = 1, fleet: int = SUPERVISOR) -> Story:
        self.faults.append(Fault("kill", role, frozenset(pids), round(at * MS), round((at + takes) * MS), fleet=fleet))
        return self

    def freeze(self, at: float, until: float, *pids: int) -> Story:
        self.faults.append(Fault("freeze", "fleet", frozenset(pids), round(at * MS), round((at + 1) * MS), round(until * MS)))
        return self

    def mistakes(self, slots: int = 2) -> list[str]:
        marks = sorted(self.marks, key=lambda mark: mark.at)
        return check(self.jobs, marks, self.faults, slots).mistakes

    def mistake(self, slots: int = 2) -> str:
        (found,) = self.mistakes(slots)
        return found


@pytest.fixture
def story() -> Story:
    return Story().accepts("a0", "a1", "b0")


# -- what may happen ---------------------------------------------------------------------------------------------


def test_jobs_that_run_once_and_in_order_are_fine(story: Story) -> None:
    story.run("a0", 0, 5).run("b0", 1, 6, BOB).run("a1", 5, 10, BOB)
    assert story.mistakes() == []


def test_a_run_that_was_killed_in_the_middle_is_repeated(story: Story) -> None:
    story.run("a0", 0, None).run("b0", 0, 5, BOB).kill(3, ANN).run("a0", 4, 9, BOB).run("a1", 9, 14, BOB)
    verdict = check(story.jobs, story.marks, story.faults)
    assert verdict.mistakes == []
    ((fault, run, again),) = [(repeat.fault, repeat.run, repeat.again) for repeat in verdict.repeats]
    assert (fault.role, run.start.pid, again.start.pid, verdict.repeats[0].seconds) == ("worker", ANN, BOB, 0.001)


def test_a_run_that_had_ended_and_was_not_settled_is_repeated(story: Story) -> None:
    story.run("a0", 0, 5).run("b0", 0, 5, BOB).kill(6, ANN).run("a0", 7, 12, BOB).run("a1", 12, 17, BOB)
    assert story.mistakes() == []


def test_a_run_may_be_killed_again_and_again(story: Story) -> None:
    story.run("b0", 0, 5, EVE).run("a0", 0, None).kill(3, ANN).run("a0", 5, None, BOB).kill(7, BOB).run("a0", 9, 12, EVE)
    assert story.run("a1", 13, 14, EVE).mistakes() == []


@pytest.mark.parametrize("pid", [SUPERVISOR, ZYGOTE])
def test_who_loses_its_parents_dies_with_them(story: Story, pid: int) -> None:
    # Eve is an isolated run that was forked between the harness's look and its kill.
    story.run("a0", 0, None).run("b0", 2.9, None, EVE).kill(3, pid, ANN, BOB, role="its parent")
    story.run("a0", 9, 12, 7, parent=6).run("b0", 9, 12, 7, parent=6).run("a1", 13, 14, 7, parent=6)
    assert story.mistakes() == []


def test_an_isolated_run_ends_soon_after_its_worker(story: Story) -> None:
    # Eve even began when Ann had just died, and had something to say.
    story.run("b0", 4.5, 5, EVE, worker=ANN).run("a0", 4.6, None, EVE, worker=ANN).kill(3, ANN)
    assert story.run("b0", 9, 12, BOB).run("a0", 9, 12, BOB).run("a1", 12, 13, BOB).mistakes() == []


def test_an_isolated_run_that_goes_on_without_its_worker_is_noticed(story: Story) -> None:
    story.run("b0", 0, 5, BOB).run("a0", 2, 9, EVE, worker=ANN).kill(3, ANN)
    assert "began while job a0" in story.run("a0", 8, 10, BOB).run("a1", 12, 13, BOB).mistake()


def test_an_isolated_run_that_begins_long_after_its_workers_end_is_noticed(story: Story) -> None:
    story.run("b0", 0, 5, BOB).kill(3, ANN).run("a0", 1100, 1101, EVE, worker=ANN)
    assert "no fault explains it" in story.run("a0", 1102, 1103, BOB).run("a1", 1104, 1105, BOB).mistake()


def test_a_worker_outlives_its_supervisor_for_a_moment(story: Story) -> None:
    story.run("a0", 0, 5).run("b0", 0, 5, BOB).kill(3, SUPERVISOR, ANN, role="supervisor", takes=5)
    assert story.run("a1", 6, 7).mistakes() == []


def test_a_lane_goes_on_without_a_run_that_is_frozen(story: Story) -> None:
    story.run("b0", 0, 5, BOB).run("a0", 5, 5000, token=2).freeze(10, 4999, ANN, ZYGOTE, SUPERVISOR)
    story.run("a0", 2000, 2005, EVE, token=3, parent=6).run("a1", 2006, 2010, EVE, token=4, parent=6)
    assert story.mistakes() == []


# -- what must not -----------------------------------------------------------------------------------------------


def test_a_job_that_never_ran_is_lost(story: Story) -> None:
    assert story.run("a0", 0, 5).run("a1", 5, 6).mistake() == "job b0 (lane b, number 0) is lost: 0 runs, none ended"


def test_a_job_that_was_killed_and_forgotten_is_lost(story: Story) -> None:
    story.run("b0", 0, None).kill(3, ANN).run("a0", 5, 6, BOB).run("a1", 7, 8, BOB)
    assert story.mistake() == "job b0 (lane b, number 0) is lost: 1 runs, none ended"


def test_a_job_nobody_enqueued_is_noticed(story: Story) -> None:
    story.run("a0", 0, 5).run("a1", 5, 6).run("b0", 0, 5).run("c0", 0, 5)
    assert "c0" in story.mistake()
    story.jobs["c0"] = Job("a", 0)
    assert "no such job was accepted" in story.mistake()


def test_two_runs_of_a_lane_at_once_are_noticed(story: Story) -> None:
    story.accepts("a2").run("b0", 0, 1).run("a0", 0, 5).run("a1", 5, 9).run("a2", 8.5, 12, BOB)
    found = story.mistakes()
    assert len(found) == 2
    assert "began while job a1 (lane a, number 1) with token 3 in process 102 ran, 0.500 ms before its end" in found[0]
    assert "overtook" in found[1]


def test_an_overlap_with_a_run_long_begun_is_noticed(story: Story) -> None:
    story.accepts("a2").run("b0", 0, 1).run("a0", 0, 100).run("a1", 101, 102, BOB).run("a2", 103, 104)
    assert story.mistakes() == []
    story.marks = [mark._replace(at=200 * MS) if (mark.id, mark.what) == ("a0", "end") else mark for mark in story.marks]
    assert sum("began while job a0" in found for found in story.mistakes()) == 2


def test_a_repeat_before_the_first_run_was_killed_is_an_overlap(story: Story) -> None:
    story.run("b0", 0, 5, BOB).run("a0", 0, None).run("a0", 2, 3, BOB).run("a1", 3.5, 4, BOB).kill(4.5, ANN).accepts("b1")
    found = story.run("b1", 5, 6, BOB).mistakes()
    assert any("job a0 (lane a, number 0) with token 3 in process 103 began while job a0" in mistake for mistake in found)
    assert any("no fault explains it" in mistake for mistake in found)


def test_a_repeat_while_the_killed_process_still_wrote_is_an_overlap(story: Story) -> None:
    # The supervisor was killed at 3. Ann died of it later: at 5 she still ended b0.
    story.run("a0", 0, None).run("b0", 0, 5).kill(3, SUPERVISOR, ANN, takes=5).run("a0", 4, 5, BOB, parent=6)
    assert "began while job a0" in story.run("a1", 6, 7, BOB, parent=6).mistake()


def test_overtaking_is_noticed(story: Story) -> None:
    found = story.run("b0", 0, 1).run("a1", 0, 5).run("a0", 5, 6).mistakes()
    assert "job a1 (lane a, number 1) with token 2 in process 102 overtook" in found[0]


def test_a_job_that_does_not_wait_for_the_repeat_of_the_one_before_overtakes(story: Story) -> None:
    story.run("b0", 0, 5, BOB).run("a0", 0, None).kill(3, ANN).run("a1", 4, 5, BOB).run("a0", 6, 7, BOB)
    assert "overtook job a0" in story.mistake()


def test_a_frozen_run_does_not_let_the_next_job_overtake(story: Story) -> None:
    story.run("b0", 0, 5, BOB).run("a0", 5, 5000, token=2).freeze(10, 4999, ANN)
    assert "overtook" in story.run("a1", 2006, 2010, EVE, token=4).mistake()


def test_a_job_without_its_predecessor_is_noticed() -> None:
    assert "overtook number 0, which had not begun" in Story().accepts("a1").run("a1", 0, 1).mistake()


def test_a_repeat_without_a_fault_is_noticed(story: Story) -> None:
    story.run("a0", 0, 5).run("a0", 5, 6).run("a1", 6, 7).run("b0", 0, 1)
    assert "no fault explains it" in story.mistake()


@pytest.mark.parametrize("pid", [BOB, EVE])
def test_the_kill_of_another_process_explains_no_repeat(story: Story, pid: int) -> None:
    story.run("a0", 0, 5).kill(3, pid).run("a0", 5, 6).run("a1", 6, 7).run("b0", 0, 1)
    assert "no fault explains it" in story.mistake()


def test_a_kill_that_came_later_explains_no_repeat(story: Story) -> None:
    story.run("a0", 0, 5).run("a0", 6, 7, BOB).kill(8, ANN).run("a1", 9, 10, BOB).run("b0", 0, 1)
    assert "no fault explains it" in story.mistake()


def test_a_kill_long_after_the_end_explains_no_repeat(story: Story) -> None:
    story.run("a0", 0, 5).run("b0", 0, 5).kill(6 + SETTLED / MS, ANN)
    story.run("a0", 7 + SETTLED / MS, 8 + SETTLED / MS, BOB).run("a1", 9 + SETTLED / MS, 10 + SETTLED / MS, BOB)
    assert "no fault explains it" in story.mistake()


def test_a_worker_that_does_not_wait_for_the_end_of_its_isolated_run_is_noticed(story: Story) -> None:
    # Who loses the zygote dies with it, as the isolated run does: Ann began before, so Eve still ran.
    story.run("b0", 0, 1, BOB).run("a0", 2, None, EVE, worker=ANN).run("a0", 4, None, ANN).kill(
        3, ZYGOTE, ANN, role="zygote", takes=2
    )
    found = story.run("a0", 9, 10, 7, parent=6).run("a1", 12, 13, 7, parent=6).mistake()
    assert found.endswith("in process 104 ran again in its own worker 102, which did not wait for its end")


def test_a_worker_that_was_frozen_may_repeat_what_it_ran(story: Story) -> None:
    story.run("b0", 0, 5, BOB).run("a0", 5, 5000, token=2).freeze(10, 4999, ANN)
    assert story.run("a0", 5001, 5002, token=3).run("a1", 5003, 5004, token=4).mistakes() == []


def test_more_repeats_than_slots_are_noticed(story: Story) -> None:
    story.accepts("c0").run("a0", 0, None).run("b0", 0, None).run("c0", 0, None).kill(3, ANN)
    story.run("a0", 4, 5, BOB).run("b0", 4, 5, BOB).run("c0", 4, 5, BOB).run("a1", 6, 7, BOB)
    assert story.mistakes(slots=3) == []
    assert story.mistake(slots=2) == "3 jobs of worker 102 ran again after the kill of worker, and it had 2 slots"


def test_isolated_runs_count_with_their_worker(story: Story) -> None:
    story.accepts("c0").run("a0", 0, None).run("b0", 0, None, EVE, worker=ANN).run("c0", 0, None, 7, worker=ANN).kill(3, ANN)
    story.run("a0", 4, 5, BOB).run("b0", 4, 5, BOB).run("c0", 4, 5, BOB).run("a1", 6, 7, BOB)
    assert story.mistakes(slots=3) == []
    assert story.mistake(slots=2).startswith("3 jobs of worker 102")


def test_a_run_that_stops_without_a_kill_is_noticed(story: Story) -> None:
    found = story.run("a0", 0, None).run("a1", 6, 7).run("b0", 0, 1).mistakes()
    assert found[0].startswith("job a0 (lane a, number 0) is lost")
    assert found[1].endswith("never ended, and nobody killed its process")


def test_an_isolated_run_whose_process_is_killed_first_begins_again_within_its_claim(story: Story) -> None:
    story.run("b0", 0, 1, BOB).run("a0", 0, None, EVE, worker=ANN, token=7).kill(3, EVE, ANN, takes=9)
    story.run("a0", 5, 6, 7, worker=ANN, token=7).run("a1", 20, 21, BOB)
    assert story.mistakes() == []


@pytest.mark.parametrize(
    ("killed", "pid", "worker", "end"), [(ANN, 7, ANN, None), (EVE, 7, BOB, None), (EVE, ANN, ANN, None), (EVE, 7, ANN, 1)]
)
def test_an_isolated_run_that_begins_again_otherwise_is_noticed(
    story: Story, killed: int, pid: int, worker: int, end: float | None
) -> None:
    """Its process was not killed, another worker has the claim, it does not run isolated, or it had ended."""
    story.run("b0", 0, 1, BOB).run("a0", 0, end, EVE, worker=ANN, token=7).kill(3, killed)
    story.run("a0", 5, 6, pid, worker=worker, token=7).run("a1", 20, 21, BOB)
    assert "one claim ran twice" in story.mistakes()[0]


def test_one_claim_that_runs_twice_is_noticed(story: Story) -> None:
    story.run("b0", 0, 1).run("a1", 6, 7, token=9).run("a0", 0, 5, token=4).run("a0", 5, 6, BOB, token=4)
    assert "one claim ran twice" in story.mistakes()[0]


def test_an_end_in_another_process_than_the_start_is_noticed(story: Story) -> None:
    story.run("a0", 0, 1).run("a1", 6, 7).run("b0", 0, None)
    story.marks.append(story.marks[-1]._replace(what="end", pid=BOB, at=5 * MS))
    assert "where it had not started" in story.mistakes()[0]


@pytest.mark.parametrize("attempts", [(2,), (1, 2), (1, 1, 3)])
def test_a_lost_worker_that_counts_as_an_attempt_is_noticed(attempts: tuple[int, ...]) -> None:
    story = Story().accepts("a0")
    *cut, last = attempts
    for number, attempt in enumerate(cut):
        story.run("a0", 10 * number, None, 200 + number, attempt=attempt).kill(10 * number + 3, 200 + number)
    story.run("a0", 100, 101, BOB, attempt=last)
    assert f"is attempt {last} after {len(cut)} runs that were cut" in story.mistake()


def test_a_crash_in_a_process_of_its_own_may_count(story: Story) -> None:
    story.run("b0", 0, 1).run("a0", 0, None).kill(3, ANN).run("a0", 5, None, BOB).kill(7, BOB)
    assert story.run("a0", 9, 12, EVE, attempt=2).run("a1", 13, 14, EVE).mistakes() == []


def test_a_claim_that_others_took_over_during_a_freeze_must_not_start(story: Story) -> None:
    story.run("b0", 0, 5, BOB).freeze(10, 4999, ANN, ZYGOTE, SUPERVISOR)
    story.run("a0", 2000, 2005, EVE, token=3, parent=6).run("a1", 2006, 2010, EVE, token=4, parent=6)
    found = story.run("a0", 5000, 5005, ANN, token=2).mistakes()
    assert "began with a stale claim" in found[0]
    assert "no fault explains it" in found[1]


def test_a_stale_claim_must_not_start_even_if_the_other_one_is_slower(story: Story) -> None:
    story.run("b0", 0, 5, BOB).freeze(10, 4999, ANN, ZYGOTE, SUPERVISOR).run("a0", 5000, 5005, ANN, token=2)
    found = story.run("a0", 5006, 5007, EVE, token=3, parent=6).run("a1", 5008, 5010, EVE, parent=6).mistakes()
    assert "no fault explains it" in found[0]


def test_an_overlap_that_begins_after_the_wake_up_is_noticed(story: Story) -> None:
    story.run("b0", 0, 5, BOB).run("a0", 5, 5100, token=2).freeze(10, 4999, ANN)
    found = story.run("a0", 5000, 5005, EVE, token=3).run("a1", 5200, 5210, EVE, token=4).mistakes()
    assert "began while job a0" in found[0]


def test_an_overlap_with_a_run_that_ended_before_it_was_frozen_is_noticed(story: Story) -> None:
    story.run("b0", 0, 5, BOB).run("a0", 5, 10.8, token=2).freeze(10, 4999, ANN)
    found = story.run("a0", 10.5, 12, EVE, token=3).run("a1", 5200, 5210, EVE, token=4).mistakes()
    assert "began while job a0" in found[0]


def test_a_frozen_run_that_never_ends_is_noticed(story: Story) -> None:
    story.run("b0", 0, 5, BOB).run("a0", 5, None, token=2).freeze(10, 4999, ANN)
    story.run("a0", 2000, 2005, EVE, token=3, parent=6).run("a1", 5006, 5010, EVE, token=4, parent=6)
    assert "never ended, and nobody killed its process" in story.mistake()


def test_a_freeze_explains_no_overlap_of_others(story: Story) -> None:
    story.run("b0", 0, 5000, EVE).freeze(10, 4999, EVE).run("a0", 5, 100, token=2)
    assert "began while job a0" in story.run("a1", 50, 120, BOB, token=3).mistakes()[0]


def test_who_writes_after_its_death_was_not_dead(story: Story) -> None:
    story.run("a0", 0, 5).run("b0", 0, 5, BOB).kill(3, ANN, takes=1)
    assert story.run("a1", 6, 7, BOB).mistake() == "process 102 wrote the end of job a0 after its kill"


def test_a_process_of_another_fleet_may_have_the_pid_of_one_that_was_killed(story: Story) -> None:
    story.kill(1, ANN, takes=1, fleet=SUPERVISOR + 1)
    assert not story.run("a0", 3, 5).run("b0", 3, 5, BOB).run("a1", 6, 7, BOB).mistakes()


def test_who_writes_while_it_is_frozen_was_not_frozen(story: Story) -> None:
    story.run("a0", 0, 5).run("b0", 0, 5, BOB).freeze(3, 6, ANN)
    assert story.run("a1", 7, 8, BOB).mistake() == "process 102 wrote the end of job a0 after its freeze"


def test_a_kill_after_all_is_done_shows_nothing(story: Story) -> None:
    story.run("a0", 0, 5).run("a1", 6, 7).run("b0", 0, 1).kill(8, ANN)
    assert story.mistake() == "the kill of worker came when all was done: it shows nothing"


# -- the records -------------------------------------------------------------------------------------------------


def test_a_record_says_who_wrote_it_and_when(tmp_path: Path) -> None:
    path = tmp_path / "evidence"
    assert read(path) == []
    append(str(path), "start", "j1", "lane-1", 3, 17, 1)
    append(str(path), "end", "j1", "lane-1", 3, 17, 1)
    start, end = read(path)
    assert start[:6] == ("start", "j1", "lane-1", 3, 17, 1)
    assert start[6:10] == (os.getpid(), os.getpid(), os.getppid(), os.getsid(0))
    assert 0 <= end.at - start.at < 10 * SECOND
    assert (read(path, RECORD), path.stat().st_size) == ([end], 2 * RECORD)


def test_a_record_that_is_being_written_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "evidence"
    append(str(path), "start", "j1", "lane-1", 3, 17, 1)
    with path.open("ab") as file:
        file.write(b"end j1")
    assert len(read(path)) == 1


def test_many_processes_write_whole_records(tmp_path: Path) -> None:
    path = tmp_path / "evidence"
    program = f"from fleet_evidence import append\nfor n in range(500): append({str(path)!r}, 'start', f'j{{n}}', 'a', n, n, 1)"
    writers = [subprocess.Popen([sys.executable, "-c", program], cwd=Path(__file__).parent) for _ in range(4)]
    assert [writer.wait(60) for writer in writers] == [0] * 4
    marks = read(path)
    assert sorted((mark.pid, mark.seq) for mark in marks) == sorted((w.pid, n) for w in writers for n in range(500))
