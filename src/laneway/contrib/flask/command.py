"""`flask laneway …`: every command of Laneway, for the Flask app that `flask` has found.

A fleet has processes of its own, which load the Flask app again: `app` here is its extension, found as `flask` finds the app.

Enters: arguments.  Leaves: an exit code.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click
from flask import Flask, current_app, has_app_context
from flask.cli import ScriptInfo, with_appcontext

from laneway.cli import laneway
from laneway.desk.locate import guarded
from laneway.errors import ConfigError

if TYPE_CHECKING:
    from laneway.desk.app import App

    app: App  #: the extension of the Flask app that `flask` would find

__all__ = ["command"]

APP = "laneway.contrib.flask.command:app"


@click.command(
    "laneway", add_help_option=False, context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False}
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
@with_appcontext
def command(ctx: click.Context, arguments: tuple[str, ...]) -> None:
    """Workers, status, jobs, queues: all commands of Laneway."""
    info = ctx.ensure_object(ScriptInfo)
    if info.app_import_path:
        os.environ["FLASK_APP"] = info.app_import_path
    os.environ.setdefault("LANEWAY_APP", APP if info.create_app is None else _name_of(info.create_app))
    laneway(args=list(arguments), prog_name=ctx.command_path)


def _name_of(create_app: object) -> str:
    """Return where a function is, of which a program has made a `FlaskGroup`."""
    module, name = getattr(create_app, "__module__", ""), getattr(create_app, "__qualname__", "")
    if module == "__main__":
        module = str(getattr(sys.modules["__main__"], "__file__", ""))
    if not module or not name.isidentifier():
        raise ConfigError(f"{create_app!r} has no name by which a worker could find it: give FlaskGroup a function of a module")
    return f"{module}:{name}"


def _find() -> Flask:
    if has_app_context():
        return current_app._get_current_object()  # type: ignore[attr-defined, no-any-return]
    info = ScriptInfo(app_import_path=os.environ.get("FLASK_APP"), set_debug_flag=False)
    return guarded("the Flask app cannot be loaded", info.load_app)


def __getattr__(name: str) -> object:
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = _find()
    if "laneway" not in found.extensions:
        raise ConfigError(f'the Flask app "{found.name}" has no Laneway: call Laneway(app), or jobs.init_app(app)')
    return found.extensions["laneway"]
