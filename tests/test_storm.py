"""Threads, forks and signals at random, on every store: nothing is lost, nothing damaged, nobody locked out."""

from __future__ import annotations

import os
import random
import select
import sqlite3
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

import redisbench
from conftest import SOAK
from workbench import file_of, ids_in_store, is_intact

SECONDS = float(os.environ.get("LANEWAY_STORM", "600")) if SOAK else 2.0
PROGRAM = str(Path(__file__).with_name("storm_program.py"))


@pytest.fixture(params=["sqlite", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    options = "timeout=30"
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'jobs.db'}?{options}"
    return f"{redisbench.emptied().url}?{options}"


@pytest.mark.soak
@pytest.mark.timeout(SECONDS + 200)
def test_forks_signals_and_threads_lose_nothing_and_lock_nobody_out(url: str, tmp_path: Path) -> None:
    evidence = tmp_path / "evidence"
    evidence.touch()
    seed = random.randrange(10**6)  # noqa: S311 - said below, so that a failure can be repeated
    ended, lives = os.pipe()

    def start(role: str, seed: int, *fds: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, PROGRAM, role, url, str(evidence), str(SECONDS), str(seed)], pass_fds=fds)

    storms = [start("enqueue", seed, lives), start("enqueue", seed + 1, lives)]
    os.close(lives)
    worker = start("work", seed)
    # The pipe ends with the last child of the storms. Until then the worker is killed now and then.
    while not select.select([ended], [], [], min(3.0, SECONDS / 2))[0]:
        worker.kill()
        worker.wait()
        clear_log_away(url)
        worker = start("work", seed)
    os.close(ended)
    worker.terminate()
    worker.wait(60)
    for storm in storms:
        storm.wait()

    told: defaultdict[str, list[str]] = defaultdict(list)
    for line in evidence.read_text().splitlines():
        what, _, rest = line.partition(" ")
        told[what].append(rest)
    summary = f"seed {seed}: { {what: len(rest) for what, rest in told.items()} }"
    accepted, done, left = set(told["accepted"]), set(told["done"]), ids_in_store(url)
    assert told["error"] == [], summary
    assert len(told["ended"]) >= 2
    assert len(told["interrupted"]) > 10
    assert len(accepted) > 100
    assert sorted(accepted - done - left) == []
    assert is_intact(url)


def clear_log_away(url: str) -> None:
    """Use the file as a program does that has it to itself, as it believes: it clears the log away when it closes."""
    if url.startswith("sqlite"):
        connection = sqlite3.connect(file_of(url), timeout=30)
        connection.execute("pragma schema_version").fetchall()
        connection.close()
