"""The billing example keeps its word: what is killed charges nobody twice, and each rule that is left out is noticed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import postgresbench
import redisbench
from conftest import SOAK

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

BILLING = Path(__file__).parent.parent / "examples" / "billing"
STAGES = ("loop", "fan_out", "invoices", "sweeper")
RULES = ("key", "charged-at", "conflict")


class Run:
    """One of the example's programs, at work; `said` waits for its end."""

    def __init__(self, folder: Path, program: str, *arguments: str, **environment: str) -> None:
        folder.mkdir()
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("LANEWAY_", "BILLING_"))}
        self._process = subprocess.Popen(
            [sys.executable, BILLING / program, *arguments], cwd=folder, env={**clean, "TMPDIR": str(folder), **environment},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def said(self, timeout: float = 200.0) -> tuple[str, int]:
        """Return what it printed, and its exit code."""
        try:
            said, _ = self._process.communicate(timeout=timeout)
        finally:
            self.close()
        return said, self._process.returncode

    def close(self) -> None:
        """End it, and let it end what it started."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(60)


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Run]]:
    """All stages at once: each waits for its provider most of the time."""
    folder = tmp_path_factory.mktemp("stages")
    with ExitStack() as stack:
        found = {stage: Run(folder / stage, f"{stage}.py", LANEWAY_URL="sqlite:///given.db") for stage in STAGES}
        for run in found.values():
            stack.callback(run.close)
        yield found


@pytest.mark.parametrize("stage", ["loop", "fan_out"])
def test_stages_one_and_two_charge_twice_after_a_kill(stage: str, stages: dict[str, Run]) -> None:
    said, code = stages[stage].said()
    assert code == 0, said
    assert re.search(r"wrong: \d+ customers were charged more than once", said), said
    assert "the database says: 0 are due, 0 invoices" in said, "and nobody can tell"
    if stage == "fan_out":
        assert re.search(r"wrong: \d+ customers were never charged", said), said


def test_stage_three_charges_once_and_knows_what_is_missing(stages: dict[str, Run]) -> None:
    said, code = stages["invoices"].said()
    assert code == 0, said
    assert "more than once" not in said
    never, open_ones = re.search(r"wrong: (\d+) customers were never", said), re.search(r"(\d+) of them not charged", said)
    assert never, said
    assert open_ones
    assert 0 < int(never[1]) <= int(open_ones[1]) < 40, said


def test_stage_four_charges_everybody_once_whatever_was_lost(stages: dict[str, Run]) -> None:
    said, code = stages["sweeper"].said()
    assert code == 0, said
    assert re.search(r"40 customers, 3 workers killed, [1-9]\d* jobs lost, 40 charges", said), said
    assert "right: each customer was charged once" in said, said
    assert "40 invoices, 0 of them not charged" in said, said


@pytest.fixture(scope="module")
def without(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Run]]:
    """A run without each of the rules, all at once."""
    folder = tmp_path_factory.mktemp("without")
    few = ("--customers", "40", "--kills", "0", "--processes", "1")
    with ExitStack() as stack:
        found = {rule: Run(folder / rule, "run.py", *few, f"--without-{rule}") for rule in RULES}
        for run in found.values():
            stack.callback(run.close)
        yield found


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_that_is_left_out_is_noticed(rule: str, without: dict[str, Run]) -> None:
    said, code = without[rule].said()
    assert code == 1, said
    twice = re.search(r"wrong: (\d+) customers were charged more than once, such as customer \d+: (.+)", said)
    assert twice, said
    keys = twice[2].split(", ")
    if rule == "key":
        assert set(keys) == {"no key"}
    elif rule == "charged-at":
        assert int(twice[1]) == 40
        assert len(set(keys)) == 1, "the same invoice, after its key was forgotten"
    else:
        assert int(twice[1]) == 40
        assert len(set(keys)) == 2, "two invoices for one month"
        assert "80 invoices for 40 customers" in said


def begin(folder: Path, store: str, customers: int, kills: int) -> Run:
    """Start a run with kills. PostgreSQL's user may not look into pytest's folders."""
    place = {"TMPDIR": redisbench.quick_disk() or tempfile.gettempdir()} if store == "postgresql" else {}
    return Run(folder / store, "run.py", "--store", store, "--customers", str(customers), "--kills", str(kills), **place)


def is_proved(run: Run, customers: int, kills: int, kinds: set[str], *, timeout: float = 250) -> None:
    """See that a run was put to the test, and that its ledger is right."""
    said, code = run.said(timeout)
    sys.stdout.write(said)  # pytest shows it with -s, and when the test fails
    assert code == 0, said
    assert f"ledger: {customers:,} charges" in said
    killed = {kind: int(number) for number, kind in re.findall(r"(\d+) × (\w+)", said)}
    assert sum(killed.values()) == kills
    assert kinds <= set(killed), "all kinds were killed"


def why_not(store: str) -> str:
    """Say what is missing for a store; empty: nothing."""
    if store == "sqlite":
        return ""
    return redisbench.why_not() if store == "redis" else postgresbench.why_not()


#: Store, customers, kills, and who is killed for sure: whoever makes the invoices may be done before it can be hit.
USUAL = {
    "sqlite": (2000, 5, {"worker", "provider", "supervisor"}),
    "redis": (300, 3, {"store", "worker"}),
    "postgresql": (300, 3, {"store", "worker"}),
}


@pytest.fixture(scope="module")
def storms(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Run]]:
    """A run with kills on each store, all at once: they wait until what was killed is there again."""
    folder = tmp_path_factory.mktemp("storms")
    with ExitStack() as stack:
        found = {store: begin(folder, store, *USUAL[store][:2]) for store in USUAL if not why_not(store)}
        for run in found.values():
            stack.callback(run.close)
        yield found


@pytest.mark.parametrize("store", USUAL)
def test_each_customer_is_charged_once_whatever_is_killed(store: str, storms: dict[str, Run]) -> None:
    if why := why_not(store):
        pytest.skip(why)
    is_proved(storms[store], *USUAL[store])


@pytest.mark.soak
@pytest.mark.skipif(not SOAK, reason="only with make soak")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("store", USUAL)
def test_a_hundred_thousand_customers_are_charged_once_with_fifty_kills(store: str, tmp_path: Path) -> None:
    if why := why_not(store):
        pytest.skip(why)
    kinds = {"worker", "producer", "provider", "supervisor", *(["store"] if store != "sqlite" else [])}
    is_proved(begin(tmp_path, store, 100_000, 50), 100_000, 50, kinds, timeout=3500)
