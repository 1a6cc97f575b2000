"""`laneway plan`: what it shows, what it takes from the store, and what it says about nonsense."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import pytest

from clidesk import Desk, open_desk
from laneway.capacity import Crew, Load, Machine, plan
from laneway.capacity.observe import FEW, arrivals, job_seconds
from laneway.cli.plan_views import lines
from laneway.core.instant import SECOND
from laneway.store.runs import Run
from laneway.worker import Worker

DOCUMENT = Path(__file__).parent.parent / "docs" / "capacity.md"
MAIL = ("plan", "--rate", "1000", "--share", "10%", "--seconds", "0.05", "--kind", "io", "--bytes", "26")
IMAGES = (
    "plan", "--rate", "1000", "--share", "1%", "--seconds", "4", "--kind", "cpu",
    "--cores", "4", "--app-memory", "400M", "--ram", "4G",
)  # fmt: skip


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    yield from open_desk(tmp_path, monkeypatch)


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A folder without an app."""
    monkeypatch.chdir(tmp_path)
    for name in ("LANEWAY_APP", "LANEWAY_URL"):
        monkeypatch.delenv(name, raising=False)
    return Desk(tmp_path)


def told(text: str) -> list[str]:
    """Return lines without the spaces that align them."""
    return [" ".join(line.split()) for line in text.splitlines()]


# -- given figures -----------------------------------------------------------------------------------------------


def test_emails_are_planned_without_an_app(nowhere: Desk) -> None:
    shown = told(nowhere.run(*MAIL))
    assert "processed : enqueued 1:5 1:0.2" in shown
    assert "keeps up no yes, 20 % busy" in shown
    assert "waiting time, with every day 96 h nothing" in shown
    assert "jobs that wait after a week 48.4 million 0" in shown
    assert "store memory after a week 1.17 GiB nothing" in shown
    assert "slots 5: this many jobs run at a time" in shown


def test_images_are_planned_without_an_app(nowhere: Desk) -> None:
    shown = told(nowhere.run(*IMAGES))
    assert "processed : enqueued 1:40 1:10" in shown
    assert "waiting time, with every day 936 h 216 h" in shown
    assert "machines 10 of 4 cores; or 5 of 8, 2 of 20, 1 of 40" in shown
    assert "RAM 1.6 of 4 GiB on each machine, 15.6 GiB in all, at worst" in shown
    assert "They would be busy 100 % of the time: have more, for bursts and failures." in shown


def test_the_document_has_every_figure(nowhere: Desk) -> None:
    found = nowhere.json(*IMAGES, "--bytes", "26", "--backlog", "100")
    assert found["load"] == {
        "rate": 1000, "share": 0.01, "seconds": 4, "kind": "cpu", "bytes": 26, "backlog": 100,
        "jobs_a_second": 10, "jobs_a_day": 864_000, "hours_of_work_a_day": 960, "at_once": 40,
    }  # fmt: skip
    assert found["machine"] == {"cores": 4, "slots": 25, "ram": 4 << 30, "app_memory": 400 << 20, "processes": 4}
    assert (found["alone"]["ratio"], found["alone"]["hours_a_day"], found["with_machine"]["ratio"]) == (40, 936, 10)
    assert (found["needed"]["machines"], found["needed"]["ram_each"]) == (10, 1600 << 20)
    assert {"machines": 2, "cores": 20, "ram_each": 8000 << 20} in found["needed"]["options"]
    assert (found["based_on"], found["now"], found["workers"], found["alone"]["drained"]) == (None, None, None, None)


def test_a_backlog_is_told_when_it_is_gone(nowhere: Desk) -> None:
    shown = nowhere.run("plan", "--rate", "10", "--seconds", "1", "--backlog", "36000")
    assert "  36,000 jobs wait.\n" in shown
    assert "gone in never 40m 00s" in told(shown)
    assert "Gone within an hour takes 20 at a time, within a day 11." in shown


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--rate 5 --seconds 1 --slots 1", "machines 1 of 1 core"),
        ("--rate 5 --seconds 1 --slots 1", "They wait, and need no cores: more slots in a process would take less RAM."),
        ("--rate 5 --seconds 1 --slots 1 --cores 2 --ram 4G --app-memory 1G", "machines 2 of 4 GiB; or 1 of 5 GiB"),
        ("--rate 5 --seconds 1 --slots 1 --kind cpu", "machines 5 of 1 core; or 2 of 3, 1 of 5"),
        ("--rate 0 --seconds 1", "0 a day, 0 h of work: 0 at a time to keep up."),
        ("--rate 0 --seconds 1", "Nothing to keep up with: no job comes."),
        ("--rate 0 --seconds 1 --backlog 9", "Nothing to keep up with: no job comes. What it takes for the backlog is below."),
        ("--rate 9 --share 0 --seconds 1", "Nothing to keep up with: no job comes."),
    ],
)  # fmt: skip
def test_what_it_takes_follows_from_what_jobs_need(nowhere: Desk, arguments: str, said: str) -> None:
    assert said in told(nowhere.run("plan", *arguments.split()))


SHOWN = re.findall(r"^```console\n\$ laneway (plan .*)\n([^$]+?)\n```$", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize(("command", "output"), SHOWN)
def test_the_document_shows_what_the_command_prints(nowhere: Desk, command: str, output: str) -> None:
    assert nowhere.run(*command.split()) == f"{output}\n"


def test_the_document_shows_both_examples() -> None:
    assert [tuple(command.split()) for command, _ in SHOWN] == [MAIL, IMAGES]


@pytest.mark.parametrize(
    ("rate", "jobs"), [("1000", 1000), ("1,000", 1000), ("0.5", 0.5), ("30/m", 0.5), ("36 / h", 0.01), ("86400/d", 1), ("7/s", 7)]
)
def test_a_rate_is_a_second_or_as_it_says(nowhere: Desk, rate: str, jobs: float) -> None:
    assert nowhere.json("plan", "--rate", rate, "--seconds", "1")["load"]["jobs_a_second"] == pytest.approx(jobs)


@pytest.mark.parametrize(("share", "found"), [("7%", 0.07), ("0.1", 0.1), ("100%", 1), (".5 %", 0.005), ("0%", 0)])
def test_a_share_is_per_cent_or_a_fraction(nowhere: Desk, share: str, found: float) -> None:
    assert nowhere.json("plan", "--rate", "100", "--share", share, "--seconds", "50ms")["load"]["share"] == found


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--rate -1 --seconds 1", "use a number of jobs per second, minute, hour or day: 1000, 50/m, 20/h, 5/d"),
        ("--rate nan --seconds 1", "use a number of jobs per second"),
        ("--rate 99999999999 --seconds 1", "rate=99999999999.0: use a number from 0 to 1,000,000,000"),
        ("--rate 1 --seconds 0", "seconds=0.0: use a number from 0.000001 to 1,000,000,000"),
        ("--rate 1 --seconds -2", "use seconds, or a number with its unit: 30, 30s, 5m, 2h, 1d"),
        ("--rate 1 --seconds nan", "use seconds"),
        ("--rate 1 --seconds 1 --share 150%", "'150%': use a share of 0% to 100%, such as 10% or 0.1"),
        ("--rate 1 --seconds 1 --share 10", "use a share of 0% to 100%"),
        ("--rate 1 --seconds 1 --share -5%", "use a share of 0% to 100%"),
        ("--rate 1 --seconds 1 --kind gpu", 'there is no "gpu". Did you mean "cpu"? Choose from io, cpu'),
        ("--rate 1 --seconds 1 --cores 0", "cores=0: use a whole number from 1 to 10,000"),
        ("--rate 1 --seconds 1 --backlog -5", "backlog=-5: use a whole number from 0"),
        ("--rate 1 --seconds 1 --ram much", "'much': use an amount of memory: 400M or 2G"),
        ("--rate 1 --seconds 1 --ram 100M --app-memory 400M", "does not fit into 104,857,600 bytes of RAM: use a larger machine"),
        ("--rate 1000", "; or give --seconds: then no app is needed"),
        ("--rate 0", "; or give --seconds: then no app is needed"),
        ("--seconds 2", "; or give --rate: then no app is needed"),
        ("--kind cpu", "; or give --rate and --seconds: then no app is needed"),
    ],
)
def test_nonsense_is_one_line_that_says_what_to_do(nowhere: Desk, arguments: str, said: str) -> None:
    assert said in nowhere.mistake("plan", *arguments.split())


def test_a_terminal_has_colours_and_a_pipe_has_none(desk: Desk) -> None:
    shown = desk.paint(*IMAGES, until="When is the backlog gone?")
    assert "\x1b[31m" in shown  # no
    assert "\x1b" not in desk.run(*IMAGES)


def test_every_plan_can_be_told_in_eighty_columns() -> None:
    chance = random.Random(1)  # noqa: S311
    for _ in range(300):
        load = Load(
            rate=chance.choice([0, 1, chance.randrange(10_000)]), seconds=chance.randrange(1, 60_000) / 1000,
            share=chance.choice([1, 0.015]), kind=chance.choice(["io", "cpu"]), backlog=chance.choice([0, 7, 10**6, 10**12]),
        )  # fmt: skip
        memory = chance.choice([None, 1, 1 << 30])
        machine = Machine(cores=chance.randrange(1, 65), app_memory=memory, ram=chance.choice([None, 4 << 30]))
        shown = click.unstyle("\n".join(lines(plan(load, machine, chance.choice([None, Crew(0, 0, 0), Crew(100, 4, 2)])))))
        assert [line for line in shown.splitlines() if len(line) > 80] == []


# -- from the store ----------------------------------------------------------------------------------------------


def test_without_a_store_or_runs_it_says_that_there_is_too_little_to_tell(desk: Desk) -> None:
    assert "there is no store" in desk.mistake("plan", code=1)
    desk.task("add").enqueue(1)
    desk.work()
    said = desk.mistake("plan", code=1)
    assert said.startswith(f"too little to tell: 1 run so far, {FEW} are needed.")
    assert said.endswith("laneway plan --rate 100 --seconds 0.05")


def test_what_is_not_given_is_taken_from_the_store(desk: Desk) -> None:
    desk.task("add").enqueue_many([(number,) for number in range(20)])
    desk.work()
    desk.task("add").enqueue_many([(number,) for number in range(5)])
    desk.task("send").enqueue("ada")
    desk.app.inspect.pause("mail")

    found = desk.json("plan", "--seconds", "2", "--cores", "2")

    assert found["based_on"]["runs"] == 20
    assert found["based_on"]["enough"] is False
    assert found["based_on"]["paused"] == ["mail"]
    assert found["load"]["seconds"] == 2
    assert found["load"]["backlog"] == 5
    assert found["load"]["rate"] == pytest.approx(23 / found["based_on"]["seconds"])  # all but the oldest tenth, and what waits
    assert found["workers"] == {"slots": 0, "processes": 0, "machines": 0}
    assert (found["now"]["ratio"], found["now"]["keeps_up"]) == (None, False)


def test_it_says_what_it_is_based_on(desk: Desk) -> None:
    desk.task("add").enqueue_many([(number,) for number in range(20)])
    desk.work()
    shown = desk.run("plan")
    assert "Based on the last 20 runs over " in shown
    assert "That is little: take it for a guess until 100 runs and 10.0 s are behind it." in shown
    assert "say --kind cpu if they compute" in shown
    assert "say --kind cpu if they compute" not in desk.run("plan", "--kind", "io")
    assert any(line.startswith("processed : enqueued no worker 1:") for line in told(shown))


def test_those_who_work_now_are_asked(desk: Desk) -> None:
    desk.task("add").enqueue_many([(number,) for number in range(20)])
    seen: list[dict[str, dict[str, object]]] = []

    @desk.app.task(name="look")
    def look() -> None:
        seen.append(desk.json("plan", "--store", desk.url))

    look.using(priority=-100, run_after=0).enqueue()
    Worker(desk.app, 3).run(burst=True)
    (found,) = seen
    assert found["workers"] == {"slots": 3, "processes": 1, "machines": 1}
    assert found["machine"]["slots"] == 3
    assert found["now"]["at_once"] == 3


# -- what runs tell ----------------------------------------------------------------------------------------------


def ran(id_: str, enqueued: float, started: float, finished: float, task: str = "app.send") -> Run:
    at = [round(moment * SECOND) for moment in (enqueued, started, finished)]
    return Run(id_, task, "default", None, at[0], at[1], at[2], "done")


def steady(rate: int, done: int, seconds: float, begin: float = 100.0) -> list[Run]:
    """The last runs where jobs come at a rate, and so many a second are done."""
    numbers = range(max(int(done * seconds) - 1000, 0), int(done * seconds))
    return [ran(str(n), begin + n / rate, begin + n / done, begin + (n + 1) / done) for n in numbers]


@pytest.mark.parametrize(("rate", "done"), [(20, 20), (100, 100), (100, 20), (1000, 50)])
def test_what_comes_is_counted_even_where_it_comes_faster_than_it_goes(rate: int, done: int) -> None:
    runs = steady(rate, done, 500)
    came, over = arrivals(runs, (rate - done) * 500, (100 + 500) * SECOND)
    assert came / over == pytest.approx(rate, rel=0.02)


def test_a_few_jobs_from_long_ago_do_not_make_a_rate_small() -> None:
    runs = [*steady(100, 100, 10), *(ran(f"old-{n}", 1, 105, 106) for n in range(50))]
    came, over = arrivals(runs, 0, 110 * SECOND)
    assert came / over == pytest.approx(100, rel=0.1)


def test_a_retry_is_the_same_job_and_its_time_counts() -> None:
    runs: Sequence[Run] = [ran("a", 1, 2, 3), ran("a", 1, 10, 12), ran("b", 1, 2, 5)]
    assert job_seconds(runs) == 3
    assert arrivals(runs, 0, 11 * SECOND) == (2, 10)


def test_lanes_that_ran_together_share_their_time() -> None:
    runs = [ran(f"lane-{n}", 1, 2, 4, "app.sync") for n in range(8)]
    assert job_seconds(runs) == 0.25


def test_what_a_lane_runs_later_is_another_job() -> None:
    assert arrivals([ran("lane", 1, 2, 3), ran("lane", 4, 5, 6)], 0, 11 * SECOND) == (2, 10)


def test_clocks_that_do_not_agree_never_make_it_endless() -> None:
    runs = [ran("a", 5, 5, 4)]
    assert arrivals(runs, 0, 4 * SECOND) == (1, 0.001)
    assert job_seconds(runs) == 1e-6


def test_a_share_alone_is_one_of_1000_requests_a_second_and_that_is_said(nowhere: Desk) -> None:
    without_rate = (IMAGES[0], *IMAGES[3:])
    assumed, said = nowhere.call(*without_rate), nowhere.call(*IMAGES)

    assert (assumed.exit_code, assumed.stdout) == (0, said.stdout)
    assert assumed.stderr == "1,000 requests a second are assumed: say how many there are with --rate.\n"
