"""Endpoints: from a request to an answer, the same way for all of them.

The user is identified first, then their rights are checked, then what they sent is read; the answer's function runs in a thread,
since the store blocks. What it returns becomes JSON, what it raises a refusal. An action leaves a line in the audit, whatever
became of it.

Enters: a request.  Leaves: a response.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from laneway.errors import LanewayError
from laneway.present.documents import by_fields
from laneway.web.access import Caller
from laneway.web.audit import audit
from laneway.web.refused import Refused, refusal_of
from laneway.web.request import Answer, WebRequest
from laneway.web.site import SHORT, Site
from laneway.web.threads import in_thread

__all__ = ["HEADERS", "LARGEST", "Endpoint", "handler", "refuse", "respond"]

#: What every answer says: a browser may not keep it, guess at its type, frame it, or load anything from it.
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
#: The largest body that is read, bytes.
LARGEST = 1 << 20


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One thing that can be asked for."""

    method: str  #: GET looks, POST acts
    path: str
    answer: Callable[[WebRequest], object]  #: blocks; gives a document, or an `Answer`
    takes: tuple[str, ...] = ()  #: parameters of the query, or fields of the body
    action: str = ""  #: what the audit calls it; empty: it only looks
    open: bool = False  #: if the dashboard is set up so, every client gets its status, and nothing else


def handler(site: Site, endpoint: Endpoint) -> Callable[[Request], Awaitable[Response]]:
    """Return an endpoint as Starlette calls it."""

    async def handle(request: Request) -> Response:
        try:
            caller = await site.access.caller(request)
        except Refused as refused:
            if endpoint.action:
                audit("unknown", endpoint.action, dict(request.path_params), f"refused: {refused.kind} ({refused.status})")
            return await _open_health(site, endpoint) if endpoint.open and site.open_health else refuse(refused)
        if not endpoint.action:
            return await _answered(site, endpoint, caller, request.scope, dict(request.query_params))
        return await _acted(site, endpoint, caller, request)

    return handle


async def _open_health(site: Site, endpoint: Endpoint) -> Response:
    full = await _answered(site, endpoint, Caller("unknown", "read", "loopback"), {}, {})
    return respond(Answer({"status": "ok" if full.status_code == 200 else "failing"}, full.status_code))


async def _acted(site: Site, endpoint: Endpoint, caller: Caller, request: Request) -> Response:
    given: dict[str, Any] = {}
    try:
        site.access.check_action(request, caller)
        try:
            given = await _body(request)
        except ClientDisconnect:  # the request is incomplete, and the client reads no answer
            return refuse(Refused(400, "hung_up", "the client hung up before it had sent the whole body"))
        response = await _answered(site, endpoint, caller, request.scope, given)
    except Refused as refused:
        response = refuse(refused)
        result = f"refused: {refused.kind}"
    else:
        result = "accepted" if response.status_code == 202 else "done" if response.status_code < 300 else "refused"
    audit(
        caller.who, endpoint.action, {**request.path_params, **site.documents.safe(given)}, f"{result} ({response.status_code})"
    )
    return response


async def _answered(
    site: Site, endpoint: Endpoint, caller: Caller, scope: Mapping[str, Any], given: Mapping[str, Any]
) -> Response:
    ask = WebRequest(site, caller, scope.get("path_params", {}), given, scope.get("root_path", ""), scope.get(SHORT, False))

    def answer() -> Response:
        ask.only(endpoint.takes)
        return respond(endpoint.answer(ask))

    try:
        return await in_thread(answer)
    except (Refused, LanewayError) as error:
        return refuse(refusal_of(error))


async def _body(request: Request) -> dict[str, Any]:
    """Read the body: a JSON object, or nothing."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in ("", "application/json"):
        raise Refused(415, "not_json", "send JSON, with Content-Type: application/json")
    read = bytearray()
    async for portion in request.stream():
        read += portion
        if len(read) > LARGEST:
            raise Refused(413, "too_large", f"the body has more than {LARGEST:,} bytes: send several requests")
    if not read.strip():
        return {}
    if not kind:
        raise Refused(415, "not_json", "send JSON, with Content-Type: application/json")
    try:
        return msgspec.json.decode(bytes(read), type=dict[str, Any])
    except (ValueError, RecursionError) as error:
        raise Refused(400, "not_json", f"the body is not a JSON object: {error}") from None


def respond(answer: object) -> Response:
    """Return a document as a response."""
    made = answer if isinstance(answer, Answer) else Answer(answer)
    content = msgspec.json.encode(by_fields(made.document)) if made.text is None else made.text.encode()
    return Response(content, made.status, {**HEADERS, **made.headers, "Content-Type": made.content_type})


def refuse(refused: Refused) -> Response:
    """Return a refusal as a response."""
    return respond(Answer(refused.document, refused.status, refused.headers))
