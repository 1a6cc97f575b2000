"""Stacks: what every thread of a worker does, written by the worker when it gets SIGTTIN.

`faulthandler` writes it from the signal's own handler, so it works while the interpreter is held by one call. The file is in a
temporary folder of the fleet; the supervisor sees it grow and names it in the log.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal

from laneway.fleet.member import Member

__all__ = ["Stacks", "stacks_file"]

log = logging.getLogger("laneway")


def stacks_file(folder: str, pid: int) -> str:
    """Return where a process writes its stacks."""
    return os.path.join(folder, f"stacks-{pid}.txt")


class Stacks:
    """Asks for stacks, and tells where they are."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._sizes: dict[str, int] = {}
        self._wanted: set[str] = set()  # to be told in the log itself

    def ask(self, member: Member, *, tell: bool = False) -> None:
        """Ask a worker for its stacks; with `tell` they are in the log as well."""
        if member.process is not None:
            if tell:
                self._wanted.add(stacks_file(self.folder, member.process.pid))
            member.process.kill(signal.SIGTTIN)

    def look(self) -> None:
        """Tell of stacks that were written since the last look."""
        for entry in os.scandir(self.folder):
            size = entry.stat().st_size
            before = self._sizes.get(entry.path, 0)
            if size == before:
                continue
            self._sizes[entry.path] = size
            text = ""
            if entry.path in self._wanted:
                self._wanted.remove(entry.path)
                with open(entry.path, encoding="utf-8", errors="replace") as file:
                    file.seek(before)
                    text = "\n" + file.read().rstrip()
            log.warning("the stacks of process %s are in %s%s", entry.name.split("-")[1].removesuffix(".txt"), entry.path, text)

    def close(self) -> None:
        """Remove the folder, unless somebody has asked for what is in it."""
        if not any(self._sizes.values()):
            shutil.rmtree(self.folder, ignore_errors=True)
