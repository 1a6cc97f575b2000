"""Access: which user sends a request, and what that user may do.

Closed, unless one of these holds:

* no credentials are set, and the request comes straight from this machine: the client's address is a loopback one, no proxy
  has left a trace, and the Host it asks for is a loopback one too. A page of a foreign site that has its name resolve to
  127.0.0.1 (rebinding) asks for another Host;
* it brings the user and the password, or the token;
* the program around us says so (`auth=`).

Where credentials are set, or the program judges, coming from this machine is not enough: so does a proxy that runs here.

Actions by browsers need more, since a browser sends cookies whichever site made the page: the page must be ours (Origin,
Sec-Fetch-Site), and must have read a token that is signed for this caller.

Enters: a request.  Leaves: a `Caller`, or `Refused`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import inspect
import ipaddress
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.requests import HTTPConnection, Request

from laneway.errors import ConfigError
from laneway.web.refused import Refused

__all__ = ["Access", "Auth", "Caller", "May", "is_loopback"]

May = Literal["read", "act"]
#: The host program's own check: what the sender of a request may do. May be async.
Auth = Callable[[Request], May | Awaitable[May | None] | None]

log = logging.getLogger("laneway.web")

#: Names of headers that proxies, balancers and content networks add: a client's address under whatever name, and what is theirs
#: alone. Neither browsers nor programs that ask directly send them.
PROXIES = re.compile(
    r"""
    .*forwarded.* | .*(?:^|-|client|socket|remote|real|user)ip | .*(?:client|remote|external)-?addr(?:ess)?
    | via | cdn-loop | x-cdn | x-varnish | surrogate-capability | max-forwards | x-scheme | x-host | x-amzn-trace-id
    | x-cloud-trace-context | remote-user
    | (?:akamai|cf|cdn|do|fastly|fly|incap|proxy|ssl-client|tailscale|true-client|wl-proxy)-.+
    | x-(?:akamai|amz-cf|appengine|appgw|arr|auth-request|azure|cluster|envoy|goog|haproxy|kong|nf|original|proxy|proxyuser|remote
        |rewrite|ssl|sucuri|traefik|vercel)-.+
    """,
    re.VERBOSE,
)
#: What only browsers send.
BROWSER = ("origin", "referer", "cookie", "sec-fetch-site", "sec-fetch-mode", "sec-fetch-dest")
#: How long a page may be open before its token has to be read again, seconds.
SIGNED_FOR = 12 * 3600


@dataclass(frozen=True, slots=True)
class Caller:
    """The client that asks, and what it may do."""

    who: str
    may: May
    by: Literal["loopback", "password", "token", "program"]


class Access:
    """Judges requests."""

    def __init__(
        self, *, auth: Auth | None = None, user: str | None = None, password: str | None = None, token: str | None = None,
        read_only: bool = False, secret: str | None = None,
    ) -> None:  # fmt: skip
        if (user is None) != (password is None):
            raise ConfigError(
                "the dashboard's user and password belong together: set LANEWAY_DASHBOARD_USER and LANEWAY_DASHBOARD_PASSWORD"
            )
        self._auth = auth
        self._user, self._password, self._token = user, password, token
        self.read_only = read_only
        seed = secret or "\0".join(part for part in (user, password, token) if part)
        self._key = hashlib.blake2b(seed.encode(), person=b"laneway csrf").digest() if seed else secrets.token_bytes(64)

    @property
    def guarded(self) -> bool:
        """Whether there is something to show: credentials, or the program's own check."""
        return self._auth is not None or self._password is not None or self._token is not None

    # -- who asks --------------------------------------------------------------------------------------------

    async def caller(self, request: Request) -> Caller:
        """Return the user of a request, or refuse it, as one that another site's page makes; a link from there is allowed."""
        if request.headers.get("sec-fetch-site") == "cross-site" and request.headers.get("sec-fetch-mode") != "navigate":
            raise Refused(403, "csrf", "a page of another site asks for this: open the dashboard itself")
        kind, _, shown = request.headers.get("authorization", "").partition(" ")
        if found := self._known(kind.lower(), shown.strip()):
            return found
        if self._auth is not None and (found := await self._ask_program(request)):
            return found
        if not self.guarded and _not_from_here(request) is None:
            return Caller("loopback", self._may("act"), "loopback")
        raise self._refusal(request)

    def _known(self, kind: str, shown: str) -> Caller | None:
        if kind == "bearer" and _same(shown, self._token):
            return Caller("token", self._may("act"), "token")
        if kind == "basic" and (pair := _basic(shown)) is not None:
            user, password = pair
            if _same(user, self._user) & _same(password, self._password):  # both are compared, whatever the first says
                return Caller(user, self._may("act"), "password")
            if _same(password, self._token):  # browsers cannot send a token otherwise
                return Caller("token", self._may("act"), "password")
        return None

    async def _ask_program(self, request: Request) -> Caller | None:
        auth = self._auth
        assert auth is not None  # noqa: S101 - the callers have checked
        said = await auth(request) if inspect.iscoroutinefunction(auth) else await run_in_threadpool(auth, request)
        if inspect.isawaitable(said):
            said = await said
        if said is None:
            return None
        if said not in ("read", "act"):
            log.error('auth= returned %r: return None, "read" or "act"', said)
            return None
        return Caller(_name_of(request), self._may(said), "program")

    def _may(self, may: May) -> May:
        return "read" if self.read_only else may

    def _refusal(self, request: Request) -> Refused:
        if self._password is not None or self._token is not None:
            how = "send the dashboard's user and password, or its token as Authorization: Bearer TOKEN"
            return Refused(401, "unauthorized", how, {"WWW-Authenticate": 'Basic realm="laneway", charset="UTF-8"'})
        if self._auth is not None:
            return Refused(403, "forbidden", "the program's auth= does not let you in: log in there first")
        why = _not_from_here(request)
        how = "set LANEWAY_DASHBOARD_TOKEN, or LANEWAY_DASHBOARD_USER and LANEWAY_DASHBOARD_PASSWORD, or give dashboard() auth="
        return Refused(403, "forbidden", f"{why}, and the dashboard has no credentials: {how}")

    # -- what they may do ------------------------------------------------------------------------------------

    def check_action(self, request: Request, caller: Caller) -> None:
        """Refuse an action that the caller may not do, or that a foreign page asks for."""
        if self.read_only:
            raise Refused(403, "read_only", "this dashboard is read-only: use another one, or the command line")
        if caller.may != "act":
            raise Refused(403, "forbidden", "you may look, and not act: ask for more rights")
        site = request.headers.get("sec-fetch-site")
        if site not in (None, "same-origin", "none"):
            raise Refused(403, "csrf", "the request comes from a page of another site: act on the dashboard itself")
        origin = request.headers.get("origin")
        if origin is not None and not _same_origin(origin, request):
            raise Refused(403, "csrf", f"the request comes from {origin[:200]!r}, not from here: let the proxy pass on the Host")
        if caller.by != "token" and _is_browser(request) and not self._signed_for(caller, request.headers.get("x-csrf-token")):
            raise Refused(403, "csrf", "read csrf_token at api/v1/session and send it as X-CSRF-Token; load the page again")

    def csrf_token(self, caller: Caller) -> str:
        """Return what a page of ours shows with an action."""
        issued = f"{int(time.time()):x}"
        return f"{issued}.{self._sign(caller, issued)}"

    def _signed_for(self, caller: Caller, token: str | None) -> bool:
        issued, _, signature = (token or "").partition(".")
        if not hmac.compare_digest(self._sign(caller, issued).encode(), signature.encode()):
            return False
        return 0 <= time.time() - int(issued, 16) + 60 <= SIGNED_FOR  # signed by us, so it is a number; clocks differ

    def _sign(self, caller: Caller, issued: str) -> str:
        said = "\0".join((issued, caller.who, caller.may, caller.by))
        return hmac.new(self._key, said.encode(errors="replace"), hashlib.sha256).hexdigest()


def _same(shown: str, wanted: str | None) -> bool:
    """Compare in a time that reveals nothing, not even the length."""
    digests = [hashlib.blake2b(text.encode(errors="replace")).digest() for text in (shown, wanted or "")]
    return hmac.compare_digest(*digests) and bool(wanted)


def _basic(shown: str) -> tuple[str, str] | None:
    try:
        user, colon, password = base64.b64decode(shown, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        return None
    return (user, password) if colon else None


def _name_of(request: HTTPConnection) -> str:
    """Return the user that the program has found, as Starlette and FastAPI keep it."""
    user = request.scope.get("user")
    return str(getattr(user, "display_name", "") or getattr(user, "username", "") or "") or "the program's user"


def _not_from_here(request: HTTPConnection) -> str | None:
    """Say why a request does not come straight from this machine; None: it does."""
    client = request.client
    if client is None or not is_loopback(client.host):
        return "the request comes from another machine"
    trace = next((name for name in request.headers if PROXIES.fullmatch(name.lower().replace("_", "-"))), None)
    if trace is not None or request.scope.get("http_version") == "1.0":  # as nginx asks, unless it is configured otherwise
        return f"the request comes through a proxy ({trace or 'HTTP/1.0'})"
    hosts = request.headers.getlist("host")
    if len(hosts) != 1 or not is_loopback(_host_of(hosts[0])):
        return f"the request is for the host {', '.join(hosts)[:200]!r}, not for this machine"
    return None


def is_loopback(host: str) -> bool:
    """Say whether a name or address always means this machine.

    >>> [is_loopback(host) for host in ("localhost", "127.8.0.1", "::1", "::ffff:127.0.0.1", "0.0.0.0", "localhost.evil.example")]
    [True, True, True, True, False, False]
    """
    if host.lower().removesuffix(".") == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def _host_of(header: str) -> str:
    """Return the host of a Host header, without its port.

    >>> [_host_of(text) for text in ("localhost:8080", "[::1]:80", "a@127.0.0.1", "")]
    ['localhost', '::1', '', '']
    """
    if any(sign in header for sign in "@/\\?#, "):
        return ""
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""


def _same_origin(origin: str, request: HTTPConnection) -> bool:
    host = request.headers.get("host", "")
    return bool(host) and origin.lower() in (f"http://{host.lower()}", f"https://{host.lower()}")


def _is_browser(request: HTTPConnection) -> bool:
    agent = request.headers.get("user-agent", "")
    return agent.startswith("Mozilla/") or any(name in request.headers for name in BROWSER)
