"""`manage.py laneway …`: every command of Laneway, for the project's app."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from pathlib import Path
from typing import Any, TextIO

from django.core.management.base import BaseCommand, CommandParser, SystemCheckError

from laneway.cli import laneway

__all__ = ["Command"]

APP = "laneway.contrib.django:app"
#: Django's own options, which it has followed by the time a command runs. Each has a value.
THEIRS = ("--settings", "--pythonpath")


class Command(BaseCommand):
    """Hands everything on to the command line."""

    help = "Laneway's commands for this project: manage.py laneway worker, manage.py laneway status, …"
    requires_system_checks = ()  # `worker` runs those of Laneway

    def run_from_argv(self, argv: list[str]) -> None:
        """Run a command as it was typed; never returns."""
        arguments = _without_theirs(argv[2:])
        if arguments[:1] == ["worker"] and "--help" not in arguments:
            try:
                self.check(tags=["laneway"])
            except SystemCheckError as error:
                self.stderr.write(str(error), lambda text: text)
                sys.exit(1)
        _run(arguments, f"{Path(argv[0]).name} {argv[1]}")

    def add_arguments(self, parser: CommandParser) -> None:
        """Take any arguments, for `call_command`."""
        parser.add_argument("arguments", nargs=argparse.REMAINDER)

    def handle(self, *_: object, arguments: list[str], stdout: TextIO | None = None, **__: Any) -> None:
        """Run a command that a program asks for; an exit code that is not 0 is raised as SystemExit."""
        with contextlib.redirect_stdout(stdout) if stdout is not None else contextlib.nullcontext():
            try:
                _run(arguments, "manage.py laneway")
            except SystemExit as ended:
                if ended.code:
                    raise


def _without_theirs(arguments: list[str]) -> list[str]:
    """Return the arguments without Django's own."""
    ours: list[str] = []
    rest = iter(arguments)
    for one in rest:
        if one in THEIRS:
            next(rest, None)
        elif not one.startswith(tuple(f"{option}=" for option in THEIRS)):
            ours.append(one)
    return ours


def _run(arguments: list[str], name: str) -> None:
    os.environ.setdefault("LANEWAY_APP", APP)
    # The processes of a fleet find the project where manage.py has found it.
    here = sys.path[0] or str(Path.cwd())
    inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if here not in inherited:
        os.environ["PYTHONPATH"] = os.pathsep.join([here, *filter(None, inherited)])
    laneway(args=arguments, prog_name=name)
