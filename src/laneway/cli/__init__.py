"""The command line: `laneway COMMAND`.

Each command is a module of its own that is loaded when it is asked for, and loads what it needs when it runs: the help comes
at once, and a worker carries no code that only paints tables. Whatever goes wrong on the way is one line on stderr: exit code 2
for a mistake in the command or the app, 1 for a store that cannot be used or something that is not in it.

Enters: the arguments.  Leaves: an exit code.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import sys
from typing import Any

import click

import laneway as front
from laneway.cli.command import CliGroup
from laneway.config import mask_urls, safe_url
from laneway.errors import LanewayError, NotFound, ResultError, StoreError

__all__ = ["COMMANDS", "laneway", "main"]

COMMANDS = (
    "worker", "status", "top", "jobs", "queues", "lanes", "workers", "schedules", "enqueue", "plan", "dashboard",
    "health", "doctor", "migrate", "store", "outbox", "config", "demo",
)  # fmt: skip

EPILOG = """\
Start with: laneway demo, then laneway worker in the folder of your app.py.
Whatever looks or acts takes -A APP, --store URL and --json; --help has examples.

Settings: a flag, else what the code says, else LANEWAY_… in the environment, else
[tool.laneway] in pyproject.toml. laneway config --sources shows them all.

Exit codes:
  0    done
  1    the store cannot be used, what is asked for is not in it, or a job failed
  2    a mistake in the command, a setting or the app
  130  stopped by Ctrl-C

Completion for bash (zsh and fish alike), in ~/.bashrc:
  eval "$(_LANEWAY_COMPLETE=bash_source laneway)\""""


class Commands(CliGroup):
    """A group that loads a command's module on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click gives it
        """Name the commands, the most needed first."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Load a command."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(importlib.import_module(f"laneway.cli.{cmd_name}"), cmd_name)
        return command

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run, and say what went wrong in one line."""
        kwargs["standalone_mode"] = False
        try:
            code = super().main(*args, **kwargs)
        except click.UsageError as error:
            seen = f" See {error.ctx.command_path} --help" if error.ctx is not None else ""
            code = _complain(f"{error.format_message().rstrip('.')}.{seen}", 2)
        except click.ClickException as error:
            code = _complain(error.format_message(), error.exit_code)
        except click.Abort:
            code = _complain("stopped at once", 130)
        except (StoreError, NotFound, ResultError) as error:
            code = _complain(str(error), 1)
        except LanewayError as error:
            code = _complain(str(error), 2)
        sys.exit(code if isinstance(code, int) else 0)


def _complain(message: str, code: int) -> int:
    click.echo(f"laneway: {mask_urls(' '.join(message.split()))}", err=True)
    return code


@click.group(
    "laneway", cls=Commands, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]}, epilog=EPILOG
)
@click.version_option(front.__version__, prog_name="laneway", message="%(prog)s %(version)s")
@click.pass_context
def laneway(ctx: click.Context) -> None:
    """Background jobs for Python: in order where order matters."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def _hide_passwords(words: list[str]) -> None:
    """Give this process a title without the secrets of its command line, which all users of the machine can read in `ps`."""
    if not any(word.startswith("--store") or "://" in word for word in words):
        return
    shown = [mask_urls(word) for word in words]
    for place, word in enumerate(words[1:], 1):
        flag, equals, value = word.partition("=")
        if words[place - 1] == "--store":
            shown[place] = safe_url(word)
        elif flag == "--store":
            shown[place] = f"{flag}{equals}{safe_url(value)}"
    if shown != words:
        from laneway.kernel import show_command  # noqa: PLC0415 - few commands have something to hide

        show_command(" ".join(["laneway", *shown[1:]]))


def main() -> None:
    """Run the command line; never returns."""
    atexit.register(gc.freeze)  # else the interpreter searches all modules for garbage before it ends: a tenth of a short command
    _hide_passwords(sys.argv)
    laneway(prog_name="laneway")
