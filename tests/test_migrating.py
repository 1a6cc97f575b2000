"""The programs of examples/migrating: from Celery and from RQ, task by task, while both systems run; all work is done once."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from itertools import pairwise
from pathlib import Path

import pytest

import redisbench
from laneway import App
from workbench import DEADLINE, until

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "examples" / "migrating"
#: Numbers of each step.
STEP = 6


class Scene:
    """A server, the old workers, a fleet, and the ledger of what they did."""

    def __init__(self, old: str, folder: Path, stack: ExitStack) -> None:
        self.old = old
        self.folder = folder
        self.ledger = folder / "ledger.txt"
        self._stack = stack
        self._sent = 0
        self._server = redisbench.Server()
        stack.callback(self._server.remove)
        self._redis = self._server.url.rpartition("/")[0]
        self.app = stack.enter_context(closing(App(f"{self._redis}/3")))

    def _environment(self, by: str, moved: str) -> dict[str, str]:
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("LANEWAY_", "PYTHONDONT"))}
        return {
            **clean, "SHOP_REDIS": self._redis, "LEDGER": str(self.ledger), "DONE_BY": by, "MOVED": moved,
            "PYTHONPATH": f"{FOLDER}:{ROOT / 'src'}", "BEAT_FILE": str(self.folder / "beat"),
        }  # fmt: skip

    def start(self, by: str, *command: str, moved: str = "") -> subprocess.Popen[bytes]:
        """Start a program that stays; what it says goes to a file."""
        log = self._stack.enter_context((self.folder / f"{by}-{command[-1].strip('-')}.log").open("wb"))
        made = subprocess.Popen(
            [sys.executable, "-m", *command], cwd=self.folder, env=self._environment(by, moved), stdout=log, stderr=log,
            start_new_session=True,
        )  # fmt: skip
        self._stack.callback(self.stop, made)
        return made

    @staticmethod
    def stop(made: subprocess.Popen[bytes]) -> int:
        """Stop it as an operator does."""
        if made.poll() is None:
            made.send_signal(signal.SIGCONT)
            made.terminate()
        return made.wait(DEADLINE)

    def fleet(self, moved: str = "") -> subprocess.Popen[bytes]:
        return self.start("laneway", "laneway", "worker", str(FOLDER / "jobs.py"), "-p", "2", moved=moved)

    def enqueue(self, moved: str, *, prices: bool = True) -> range:
        """Run the program that enqueues, as it is deployed at this step; return the numbers of what it enqueued."""
        numbers = range(self._sent, self._sent + STEP)
        self._sent += STEP
        done = subprocess.run(
            [sys.executable, FOLDER / "shop.py", self.old, str(numbers.start), str(numbers.stop)],
            cwd=self.folder, env={**self._environment("nobody", moved), "PRICES": "yes" if prices else ""}, capture_output=True,
            text=True, timeout=DEADLINE, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert ("119" in done.stdout) is prices
        return numbers

    def done(self) -> list[tuple[str, str]]:
        """Return who did what, in the order of the ledger."""
        lines = self.ledger.read_text(encoding="utf-8").splitlines() if self.ledger.exists() else []
        return [(line.split()[0], line.partition(" ")[2]) for line in lines]

    def number(self, what: str, by: str | None = None) -> int:
        return sum(one.startswith(what) and by in (None, system) for system, one in self.done())

    def until_done(self, what: str, number: int) -> None:
        until(lambda: self.number(what) >= number, f"{number} × {what}: {self.done()}")

    def drained(self) -> bool:
        """Say whether the old system has nothing more to do."""
        import redis  # noqa: PLC0415 - it may be missing, where there is no server

        with redis.Redis.from_url(f"{self._redis}/{0 if self.old == 'celery' else 2}") as client:
            if self.old == "celery":
                return not any((client.llen("celery"), client.llen("billing"), client.hlen("unacked")))
            waiting = sum(client.llen(f"rq:queue:{queue}") for queue in ("default", "billing"))
            others = sum(
                client.zcard(f"rq:{kind}:{queue}")
                for kind in ("wip", "scheduled", "deferred")
                for queue in ("default", "billing")
            )
            return not waiting + others


@pytest.fixture(params=["celery", "rq"])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    if why := redisbench.why_not():
        pytest.skip(why)
    pytest.importorskip(request.param)
    with ExitStack() as stack:
        yield Scene(request.param, tmp_path, stack)


def old_worker(scene: Scene) -> subprocess.Popen[bytes]:
    if scene.old == "celery":
        quick = ("--without-gossip", "--without-mingle", "--without-heartbeat")
        return scene.start("celery", "celery", "-A", "celery_app", "worker", "-Q", "celery,billing", "-P", "solo", *quick)
    url = f"{scene.app.url.rpartition('/')[0]}/2"
    return scene.start("rq", "rq.cli", "worker", "billing", "default", "--url", url, "--with-scheduler")


def test_a_program_moves_task_by_task_and_all_work_is_done_once(scene: Scene) -> None:
    old, by_old = old_worker(scene), scene.old
    beat = scene.start("celery", "celery", "-A", "celery_app", "beat", "--max-interval", "1") if by_old == "celery" else None
    fleet = scene.fleet()

    # Before: the old system does everything.
    before = scene.enqueue("")
    scene.until_done("email", STEP)
    scene.until_done("ship", STEP)
    if beat:
        scene.until_done("report", 2)
    assert {by for by, _ in scene.done()} == {by_old}

    # Emails move first: order does not matter to them.
    emails = scene.enqueue("send_email")
    scene.until_done("email", 2 * STEP)

    # Charges move in order: theirs wait in Laneway, while the old worker does what it still has.
    old.send_signal(signal.SIGSTOP)
    behind = scene.enqueue("send_email", prices=False)
    scene.app.inspect.pause("billing")
    charges = scene.enqueue("send_email,charge", prices=False)
    old.send_signal(signal.SIGCONT)
    until(scene.drained, "an empty queue of the old system")
    assert scene.number("charge", "laneway") == 0
    scene.app.inspect.resume("billing")

    # Then all the rest. A schedule is switched off before it is switched on elsewhere.
    everything = "send_email,charge,process,price,report"
    if beat:
        scene.stop(beat)
    scene.fleet(everything)
    assert scene.stop(fleet) == 0
    after = scene.enqueue(everything)
    until(scene.drained, "an empty queue of the old system")
    scene.stop(old)
    scene.until_done("ship", 5 * STEP)
    scene.until_done("charge", 5 * STEP)
    scene.until_done("email", 5 * STEP)
    until(lambda: scene.number("report", "laneway") >= 2, "two reports")

    done = scene.done()
    once = Counter(what for _, what in done if not what.startswith(("report", "price")))
    steps = (before, emails, behind, charges, after)
    numbers = [number for step in steps for number in step]
    assert once == Counter(
        f"{what} {number % 3} {number}" if what == "charge" else f"{what} {number}"
        for number in numbers for what in ("email", "charge", "reserve", "pack", "ship")
    )  # fmt: skip
    who = {what: by for by, what in done}
    for what, step in (("email", emails), ("ship", after)):
        assert {who[f"{what} {number}"] for number in step} == {"laneway"}
    assert {who[f"charge {number % 3} {number}"] for number in behind} == {by_old}
    assert {who[f"charge {number % 3} {number}"] for number in charges} == {"laneway"}
    for customer in range(3):
        charged = [int(what.split()[2]) for _, what in done if what.startswith(f"charge {customer} ")]
        assert charged == sorted(charged)
    place = {what: place for place, (_, what) in enumerate(done)}
    for number in numbers:
        assert all(
            place[f"{first} {number}"] < place[f"{then} {number}"] for first, then in pairwise(("reserve", "pack", "ship"))
        )
    reports = [by for by, what in done if what == "report"]
    assert reports == sorted(reports)  # Celery's, then Laneway's


def test_what_the_document_shows_is_in_the_programs() -> None:
    text = (ROOT / "docs" / "migrating.md").read_text(encoding="utf-8")
    shown = re.findall(r"^```text\n# (\w+\.py)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert {name for name, _ in shown} == {"celery_app.py", "rq_app.py", "jobs.py", "shop.py"}
    for name, block in shown:
        lines = (FOLDER / name).read_text(encoding="utf-8").splitlines()
        assert [line for line in block.splitlines() if line not in lines] == []
