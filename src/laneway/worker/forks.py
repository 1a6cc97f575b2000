"""Forks in a job's code: the job and the worker belong to the parent, and the child must end without either."""

from __future__ import annotations

import os

__all__ = ["forks"]


class Forks:
    """The number of forks between the program and this process: a fork in a job's code is found without a system call."""

    depth = 0

    def one_more(self) -> None:
        """Count a fork, in the child."""
        self.depth += 1


forks = Forks()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=forks.one_more)
