"""Stacks of all threads of a worker, which writes them when it gets SIGTTIN.

They go into memory that the supervisor shares; it sees that grow, copies it into a temporary file, and logs the file's name.

On SIGTTIN a worker writes while it holds the interpreter lock, so that no other thread runs. If one call holds the lock
and does not release it, the supervisor sends SIGTTOU: then the signal handler itself writes, whichever thread has the lock. While
other threads run, that could crash the process; but it is meant for a thread that lets none of them run.
"""

from __future__ import annotations

import itertools
import os
import signal
import tempfile
import time

from laneway.fleet.member import Member
from laneway.logs import log

__all__ = ["Stacks", "of_jobs"]

#: How long a worker may take to answer before the supervisor sends SIGTTOU, seconds.
PATIENCE = 0.1
#: The file that calls jobs.
_RUN = os.path.join("laneway", "worker", "run.py")


def of_jobs(stacks: str) -> str:
    """Return the stacks of jobs: the threads that run one, down to where Laneway's own code begins."""
    found: list[str] = []
    for thread in stacks.split("\n\n"):
        _, *frames = thread.splitlines() or [""]
        theirs = list(itertools.takewhile(lambda frame: _RUN not in frame, frames))
        if len(theirs) < len(frames):
            found += ["  a job, most recent call first:", *theirs]
    return "\n".join(found)


class Stacks:
    """Asks workers for their stacks, and logs where they are."""

    def __init__(self) -> None:
        self._wanted: set[str] = set()  # workers whose jobs' stacks go into the log itself
        self._asked: dict[str, float] = {}  # workers that have not answered, and when they were asked

    def ask(self, member: Member, *, tell: bool = False) -> None:
        """Ask a worker for its stacks; with `tell` those of its jobs are logged as well."""
        if member.process is not None:
            if tell:
                self._wanted.add(member.id)
            self._asked[member.id] = time.monotonic()
            member.process.kill(signal.SIGTTIN)

    def look(self, member: Member, *, last: bool = False) -> None:
        """Log stacks that were written; at the `last` look also incomplete ones."""
        file = member.stacks
        size = os.fstat(file.fd).st_size
        before, file.seen = file.seen, size
        if size > file.told and (size == before or last):  # else it is being written now
            text = os.pread(file.fd, size - file.told, file.told)
            file.told = size
            self._log_stacks(member, text)
        if size > before or last:
            self._asked.pop(member.id, None)
        elif member.id in self._asked and time.monotonic() > self._asked[member.id] + PATIENCE:
            del self._asked[member.id]
            if member.process is not None:
                member.process.kill(signal.SIGTTOU)

    def _log_stacks(self, member: Member, text: bytes) -> None:
        pid = member.process.pid if member.process else 0
        with tempfile.NamedTemporaryFile("wb", prefix=f"laneway-stacks-{pid}-", suffix=".txt", delete=False) as file:
            file.write(text)
        jobs = ""
        if member.id in self._wanted:
            self._wanted.remove(member.id)
            jobs = of_jobs(text.decode(errors="replace"))
        log.warning(
            "the stacks of worker %d (pid %d) are in %s", member.number, pid, file.name, extra={"laneway_stacks": jobs}
        )  # fmt: skip
