"""The dashboard as a blueprint: the Flask app finds the user of a request, and the dashboard answers it.

`auth` runs inside of the request, with the session and whatever an extension such as Flask-Login keeps for it.

Enters: requests of a Flask app.  Leaves: responses.
"""

from __future__ import annotations

import io
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, cast

from flask import Blueprint, Flask, Response, abort, current_app, g, request

from laneway.errors import ConfigError
from laneway.web import dashboard
from laneway.web.endpoint import LARGEST
from laneway.web.wsgi import as_wsgi

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication

    from flask.blueprints import BlueprintSetupState
    from flask.typing import ResponseReturnValue

    from laneway.contrib.flask.extension import Laneway

__all__ = ["FlaskAuth", "make_blueprint"]

#: Says what the user of the request may do: "read" or "act", nothing, or how to log in: a response.
FlaskAuth = Callable[[], "ResponseReturnValue | None"]
#: Where the view leaves what `auth` has said.
MAY = "laneway.may"


def make_blueprint(jobs: Laneway, auth: FlaskAuth | None, options: Mapping[str, Any]) -> Blueprint:
    """Return the dashboard as a blueprint."""
    blueprint = Blueprint("laneway", __name__, url_prefix="/jobs")
    sites: weakref.WeakKeyDictionary[Flask, WSGIApplication] = weakref.WeakKeyDictionary()

    def make(state: BlueprintSetupState) -> None:
        chosen: dict[str, Any] = {"secret": _text(state.app.secret_key), **options}
        if auth is not None:
            if not chosen["secret"]:
                raise ConfigError("the dashboard signs its actions: set app.secret_key before you register its blueprint")
            chosen["auth"] = _said
        sites[cast("Flask", state.app)] = as_wsgi(dashboard(jobs, **chosen))

    def show(rest: str = "") -> ResponseReturnValue:
        may = None if auth is None else auth()
        if auth is not None and may is None:
            abort(403)
        if may is not None and may not in ("read", "act"):
            return may
        return Response.from_app(sites[current_app._get_current_object()], _environ(rest, may))  # type: ignore[attr-defined]

    blueprint.record(make)
    blueprint.add_url_rule("/", "dashboard", show, methods=["GET", "POST"])
    blueprint.add_url_rule("/<path:rest>", "dashboard", show, methods=["GET", "POST"])
    return blueprint


def _said(asked: Any) -> Literal["read", "act"] | None:
    found: Literal["read", "act"] | None = asked.scope["wsgi"][MAY]
    return found


def _text(secret: str | bytes | None) -> str | None:
    return secret.decode("latin-1") if isinstance(secret, bytes) else secret


def _environ(rest: str, may: object) -> dict[str, Any]:
    """Return the environ of the request, for an app that is mounted where the blueprint is."""
    below = request.path[: len(request.path) - len(rest)].rstrip("/")
    environ: dict[str, Any] = {**request.environ, MAY: may, "PATH_INFO": _latin(f"/{rest}")}
    environ["SCRIPT_NAME"] = environ.get("SCRIPT_NAME", "").rstrip("/") + _latin(below)
    if name := _user():
        environ["REMOTE_USER"] = name
    length = request.content_length or 0
    if length > LARGEST:
        abort(413)
    if length:  # something before us may have read it
        environ["wsgi.input"] = io.BytesIO(request.get_data())
    return environ


def _latin(path: str) -> str:
    return path.encode().decode("latin-1")


def _user() -> str:
    """Return the user of a request, for the log of actions: that of Flask-Login, or what programs keep in `g.user`."""
    user = g.get("_login_user") or g.get("user")
    known = (getattr(user, name, None) for name in ("username", "name", "email"))
    return next((one for one in known if isinstance(one, str) and one), "") or (user if isinstance(user, str) else "")
