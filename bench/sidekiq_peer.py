"""Sidekiq beside us, from Debian's packages: ruby-sidekiq and ruby-hiredis. Its programs are in bench/sidekiq."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import harness
from raw_redis import Server

__all__ = ["Sidekiq", "compare", "sidekiq_missing", "tuned"]

FOLDER = Path(__file__).with_name("sidekiq")


def sidekiq_missing() -> str:
    """Say what Sidekiq lacks here; empty: nothing."""
    if shutil.which("sidekiq") and shutil.which("ruby"):
        return ""
    return "no Sidekiq here, its rows are left out: apt-get install ruby-sidekiq ruby-hiredis"


@functools.cache
def tuned() -> Mapping[str, str]:
    """Return the environment of a Sidekiq at its best: it logs nothing of its jobs, and Ruby compiles where it has YJIT."""
    probe = ["ruby", "--yjit", "-e", ""]
    compiles = subprocess.run(probe, capture_output=True, check=False).returncode == 0
    return {"SIDEKIQ_QUIET": "1", **({"RUBYOPT": "--yjit"} if compiles else {})}


class Sidekiq:
    """Sidekiq on a server: database 1, so that both may use one."""

    def __init__(self, server: Server, where: Path) -> None:
        self._where = where
        self._ran = where / "ran"
        self._environment = {**os.environ, "REDIS_URL": server.url.removesuffix("0") + "1", "SIDEKIQ_RAN": str(self._ran)}

    def push(self, how: str, jobs: int) -> float:
        """Enqueue `one` by one or in `bulk`; return how many per second."""
        command = ["ruby", str(FOLDER / "push.rb"), how, str(jobs)]
        environment = {**self._environment, **tuned()}
        said = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
        assert not said.stderr, f"Sidekiq warns, which costs it time: {said.stderr[:500]}"
        return float(said.stdout)

    def work(self, jobs: int, slots: int, settings: Mapping[str, str]) -> float:
        """Fill the queue, run all, and return how many per second from the first to the last. `settings`: for its environment."""
        self._ran.write_text("")
        self.push("bulk", jobs)
        command = ["sidekiq", "-r", str(FOLDER / "worker.rb"), "-c", str(slots)]
        environment = {**self._environment, "SIDEKIQ_JOBS": str(jobs), **settings}
        with (self._where / "sidekiq.log").open("w") as log:
            process = subprocess.Popen(command, env=environment, cwd=self._where, stdout=log, stderr=log)
            try:
                while len(self._ran.read_text().splitlines()) < 2:
                    assert process.poll() is None, (self._where / "sidekiq.log").read_text()
                    time.sleep(0.05)
            finally:
                process.terminate()
                process.wait(30)
        log_lines = (self._where / "sidekiq.log").read_text()
        assert "deprecated" not in log_lines, f"Sidekiq warns, which costs it time: {log_lines[:500]}"
        first, last = map(float, self._ran.read_text().split())
        return jobs / (last - first)


def compare(title: str, rows: Mapping[str, Callable[[], float]]) -> None:
    """Let rows take turns; show each beside the first, which is raw, and the last: Sidekiq at its best, if it is there."""
    lacking = sidekiq_missing()
    shown = {name: row for name, row in rows.items() if not (lacking and name.startswith("Sidekiq"))}
    first, *_, last = shown
    harness.compare(title, shown, {"of raw": first} if lacking else {"of raw": first, "of Sidekiq": last})
    if lacking:
        print(f"    {lacking}")
