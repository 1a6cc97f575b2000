"""Who is let in, and who may act: closed unless there is a reason to open, checked for every route there is."""

from __future__ import annotations

import base64
import logging
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from laneway import App
from laneway.errors import ConfigError
from laneway.web import dashboard
from laneway.web.access import SIGNED_FOR, Access
from laneway.web.app import ENDPOINTS, LIVE
from laneway.web.endpoint import Endpoint
from webdesk import ACTIONS, HERE, LOOKS, TOKEN, Shop, asking, visiting

PASSWORD = "correct horse"  # noqa: S105 - of a test
BROWSER = {"origin": HERE, "sec-fetch-site": "same-origin", "user-agent": "Mozilla/5.0"}


def basic(user: str, password: str) -> dict[str, str]:
    return {"authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def everything(site: Starlette) -> list[tuple[str, str]]:
    """All that a dashboard answers to, read off the ASGI app itself; files that are the same for all are left out."""
    routes = [route for route in site.routes if not (isinstance(route, Mount) and isinstance(route.app, StaticFiles))]
    assert all(isinstance(route, Route) for route in routes), "a new kind of route: walk it too"
    return [(method, route.path) for route in routes if isinstance(route, Route) for method in sorted(route.methods or ())]


def test_the_routes_of_the_api_are_the_endpoints_and_the_live_stream(app: App) -> None:
    wanted = {(one.method, one.path) for one in ENDPOINTS} | {("GET", LIVE)}
    assert wanted <= (found := set(everything(dashboard(app))))
    assert {(method, path) for method, path in found if path.startswith("/api/") and method != "HEAD"} <= wanted
    assert {method for method, path in found if not path.startswith("/api/")} <= {"GET", "HEAD"}, "what acts is an endpoint"


OUTSIDERS: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "another machine": ({"client": ("192.0.2.7", 5)}, {}),
    "a foreign host": ({"base": "http://evil.example:8080"}, {}),
    "a host that begins well": ({"base": "http://localhost.evil.example"}, {}),
    "a proxy": ({}, {"x-forwarded-for": "192.0.2.7"}),
    "a proxy that says from where": ({}, {"forwarded": "for=127.0.0.1"}),
    "a proxy that names itself": ({}, {"via": "1.1 proxy"}),
    "a proxy with the real address": ({}, {"x-real-ip": "127.0.0.1"}),
    "another proxy": ({}, {"x-forwarded-host": "localhost"}),
    "two hosts": ({}, {"host": "localhost, evil.example"}),
    "no host": ({}, {"host": ""}),
    "a user in the host": ({}, {"host": "evil@localhost"}),
}


@pytest.mark.parametrize("outsider", OUTSIDERS)
def test_an_outsider_sees_nothing_and_changes_nothing(app: App, outsider: str) -> None:
    shop = Shop(app).fill()
    before = shop.snapshot()
    how, headers = OUTSIDERS[outsider]
    site = dashboard(app)
    with asking(site, **how) as client:
        for method, path in everything(site):
            answer = client.ask(method, path.replace("{id}", shop.dead), headers=headers, json={"all": True})
            assert answer.status_code == 403, path
            assert method == "HEAD" or "LANEWAY_DASHBOARD_TOKEN" in answer.text
    assert shop.snapshot() == before


@pytest.mark.parametrize(
    "name",
    [
        "CDN-Loop", "CF-Connecting-IP", "CF-Connecting-IPv6", "CF-IPCountry", "CF-Ray", "Client-IP", "DO-Connecting-IP",
        "Fastly-Client-IP", "Fly-Client-IP", "Forwarded", "Incap-Client-IP", "Max-Forwards", "Proxy-Client-IP", "Remote-Addr",
        "Surrogate-Capability", "Tailscale-User-Login", "True-Client-IP", "Via", "WL-Proxy-Client-IP", "X-Amz-Cf-Id",
        "X-Amzn-Trace-Id", "X-Appengine-User-IP", "X-ARR-LOG-ID", "X-Azure-ClientIP", "X-Azure-FDID", "X-Azure-SocketIP",
        "X-Client-IP", "X-Cloud-Trace-Context", "X-Cluster-Client-IP", "X-Envoy-External-Address", "X-Forwarded",
        "X-Forwarded-Client-Cert", "X-Forwarded-For", "X_Forwarded_For", "X-Forwarded-Prefix", "X-Forwarded-Proto",
        "X-Nf-Client-Connection-IP", "X-Original-Forwarded-For", "X-Original-Host", "X-Original-URL", "X-Originating-IP",
        "X-ProxyUser-IP", "X-Real-IP", "X-Remote-Addr", "X-Remote-IP", "X-Rewrite-URL", "X-Scheme", "X-Sucuri-ClientIP",
        "X-Varnish", "X-Vercel-Forwarded-For",
    ],
)  # fmt: skip
def test_a_header_that_proxies_add_is_enough_to_close(app: App, name: str) -> None:
    with visiting(app) as client:
        answer = client.ask("GET", "/api/v1/counts", headers={name: "127.0.0.1"})
    assert (answer.status_code, "through a proxy" in answer.text) == (403, True)


def test_what_browsers_and_programs_send_is_no_trace_of_a_proxy(app: App) -> None:
    sent = {
        "accept": "*/*", "accept-encoding": "gzip", "accept-language": "en", "cache-control": "no-cache", "connection": "close",
        "cookie": "a=b", "dnt": "1", "if-none-match": '"x"', "last-event-id": "7", "origin": HERE, "pragma": "no-cache",
        "priority": "u=0", "referer": HERE, "sec-ch-ua-platform": "Linux", "sec-fetch-site": "same-origin", "sec-gpc": "1",
        "te": "trailers", "traceparent": "00-1-1-01", "upgrade-insecure-requests": "1", "user-agent": "Mozilla/5.0",
        "x-csrf-token": "x", "x-request-id": "1", "x-requested-with": "XMLHttpRequest",
    }  # fmt: skip
    with visiting(app) as client:
        assert client.ask("GET", "/api/v1/counts", headers=sent).status_code == 200


@pytest.mark.parametrize("base", ["http://localhost", "http://127.0.0.1:8080", "http://[::1]:8080", "http://LOCALHOST:1"])
def test_this_machine_is_let_in(app: App, base: str) -> None:
    with asking(dashboard(app), base=base, client=("::ffff:127.0.0.1", 5)) as client:
        assert client.get("/api/v1/counts")["dead"] == 0


def test_without_http_1_1_it_is_a_proxy(app: App) -> None:
    site = dashboard(app)

    async def old(scope: Any, receive: Any, send: Any) -> None:
        await site({**scope, "http_version": "1.0"}, receive, send)

    with asking(old) as client:
        assert "proxy" in client.get("/api/v1/counts", 403)["error"]["message"]


# -- credentials -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "who"),
    [
        (basic("ada", PASSWORD), "ada"), (bearer(TOKEN), "token"), (basic("anybody", TOKEN), "token"),
        ({"authorization": f"bearer  {TOKEN} "}, "token"),
    ],
)  # fmt: skip
def test_credentials_let_in_from_anywhere(app: App, headers: dict[str, str], who: str) -> None:
    site = dashboard(app, user="ada", password=PASSWORD, token=TOKEN)
    with asking(site, client=("192.0.2.7", 5), base="https://jobs.example") as client:
        assert client.ask("GET", "/api/v1/session", headers={**headers, "x-forwarded-for": "198.51.100.1"}).json()["who"] == who


@pytest.mark.parametrize(
    "headers",
    [
        {}, basic("ada", "wrong"), basic("bob", PASSWORD), basic("ada", ""), bearer("wrong"), bearer(""), bearer(PASSWORD),
        {"authorization": "Basic !"}, {"authorization": "Basic YWRh"}, {"authorization": "Digest x"}, basic("", ""),
        {"authorization": "Basic /w=="},
    ],
)  # fmt: skip
def test_wrong_credentials_do_not_nor_does_being_here(app: App, headers: dict[str, str]) -> None:
    shop = Shop(app).fill()
    before = shop.snapshot()
    site = dashboard(app, user="ada", password=PASSWORD, token=TOKEN)
    with asking(site) as client:
        for method, path in everything(site):
            answer = client.ask(method, path.replace("{id}", shop.dead), headers=headers, json={"all": True})
            assert (answer.status_code, answer.headers["www-authenticate"][:5]) == (401, "Basic"), path
    assert shop.snapshot() == before


def test_credentials_come_from_settings(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANEWAY_DASHBOARD_TOKEN", TOKEN)
    with visiting(app) as client:
        assert client.ask("GET", "/api/v1/counts").status_code == 401
        assert client.ask("GET", "/api/v1/counts", headers=bearer(TOKEN)).status_code == 200
    monkeypatch.setenv("LANEWAY_DASHBOARD_USER", "ada")
    with pytest.raises(ConfigError, match="belong together"):
        dashboard(app)


def test_an_app_is_needed() -> None:
    with pytest.raises(ConfigError, match="give it your App"):
        dashboard("sqlite://")  # type: ignore[arg-type]


def by_header(request: Request) -> Any:
    return request.headers.get("x-role")


async def by_header_later(request: Request) -> Any:
    return request.headers.get("x-role")


@pytest.mark.parametrize("auth", [by_header, by_header_later])
def test_the_program_judges(app: App, auth: Any, caplog: pytest.LogCaptureFixture) -> None:
    shop = Shop(app).fill()
    with asking(dashboard(app, auth=auth), client=("192.0.2.7", 5), base="https://shop.example") as client:
        path = f"/api/v1/jobs/{shop.dead}/retry"
        assert client.ask("GET", "/api/v1/counts").status_code == 403
        assert client.ask("GET", "/api/v1/counts", headers={"x-role": "admin"}).status_code == 403
        assert "auth= returned 'admin'" in caplog.text
        assert client.ask("GET", "/api/v1/counts", headers={"x-role": "read"}).status_code == 200
        assert client.ask("POST", path, headers={"x-role": "read"}).status_code == 403
        assert client.ask("POST", path, headers={"x-role": "act"}).status_code == 200


# -- acting ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("endpoint", ACTIONS, ids=lambda one: one.path)
def test_who_may_only_look_changes_nothing(app: App, endpoint: Endpoint, caplog: pytest.LogCaptureFixture) -> None:
    shop = Shop(app).fill()
    before = shop.snapshot()
    caplog.set_level(logging.INFO, "laneway.audit")
    path, body = shop.path(endpoint), shop.body(endpoint)
    with visiting(app, read_only=True) as client:
        assert client.post(path, 403, **body)["error"]["kind"] == "read_only"
        assert client.get("/api/v1/session")["may"] == "read"
    with visiting(app, auth=lambda _: "read") as client:
        assert client.post(path, 403, **body)["error"]["kind"] == "forbidden"
    with visiting(app) as client:
        token = client.get("/api/v1/session")["csrf_token"]
        for more in (BROWSER, {"sec-fetch-site": "cross-site", "x-csrf-token": token}, {"cookie": "a=b"}, {"referer": HERE}):
            answer = client.ask("POST", path, json=body, headers=more)
            assert (answer.status_code, answer.json()["error"]["kind"]) == (403, "csrf")
    lines = [record.__dict__["audit"]["result"] for record in caplog.records if record.name == "laneway.audit"]
    assert lines == ["refused: read_only (403)", "refused: forbidden (403)", *["refused: csrf (403)"] * 4]
    assert shop.snapshot() == before


def test_a_page_of_ours_acts_with_the_token_that_it_read(app: App) -> None:
    shop = Shop(app).fill()
    with visiting(app) as client:
        token = client.get("/api/v1/session")["csrf_token"]
        answer = client.ask("POST", f"/api/v1/jobs/{shop.dead}/retry", headers={**BROWSER, "x-csrf-token": token})
    assert answer.status_code == 200


@pytest.mark.parametrize(
    "more",
    [
        {"origin": "https://evil.example"}, {"origin": "null"}, {"origin": "http://localhost:9090"},
        {"sec-fetch-site": "same-site"}, {"sec-fetch-site": "cross-site"}, {"x-csrf-token": ""},
        {"x-csrf-token": "6af9.abc"}, {"x-csrf-token": "é".encode("latin-1")},
    ],
)  # fmt: skip
def test_a_page_of_another_site_does_not_even_with_a_token(app: App, more: dict[str, Any]) -> None:
    shop = Shop(app).fill()
    with visiting(app) as client:
        token = client.get("/api/v1/session")["csrf_token"]
        headers = {**BROWSER, "x-csrf-token": token, **more}
        assert client.ask("POST", f"/api/v1/jobs/{shop.dead}/retry", headers=headers).json()["error"]["kind"] == "csrf"
    assert app.inspect.counts()["dead"] == 1


def test_a_page_of_another_site_cannot_even_look_but_may_link_here(app: App) -> None:
    with visiting(app) as client:
        loads = client.ask("GET", "/api/v1/counts", headers={"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"})
        links = client.ask("GET", "/api/v1/counts", headers={"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"})
    assert (loads.status_code, links.status_code) == (403, 200)


def test_a_token_is_for_one_caller_and_not_for_ever(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop(app).fill()
    site = dashboard(app, user="ada", password=PASSWORD, token=TOKEN)
    path = f"/api/v1/jobs/{shop.dead}/retry"
    with asking(site) as client:

        def read(**headers: str) -> str:
            return str(client.ask("GET", "/api/v1/session", headers=headers).json()["csrf_token"])

        def act(token: str, headers: dict[str, str]) -> int:
            return client.ask("POST", path, headers={**BROWSER, **headers, "x-csrf-token": token}).status_code

        adas, programs = read(**basic("ada", PASSWORD)), read(**bearer(TOKEN))
        assert act(programs, basic("ada", PASSWORD)) == 403
        now = __import__("time").time()
        monkeypatch.setattr("laneway.web.access.time.time", lambda: now + SIGNED_FOR + 1)
        assert act(adas, basic("ada", PASSWORD)) == 403
        monkeypatch.undo()
        assert act(adas, basic("ada", PASSWORD)) == 200
        assert (
            client.ask("POST", path, headers={**BROWSER, **bearer(TOKEN)}).status_code == 409
        )  # no browser sends that by itself


def test_several_processes_agree_on_tokens_if_they_share_something() -> None:
    from laneway.web.access import Caller  # noqa: PLC0415

    ada = Caller("ada", "act", "program")
    one, two, other = (Access(auth=by_header, secret=secret) for secret in ("s", "s", None))
    assert two._signed_for(ada, one.csrf_token(ada))
    assert not other._signed_for(ada, one.csrf_token(ada))


def test_health_can_be_open_and_tells_strangers_nothing_more(app: App) -> None:
    Shop(app).fill()
    with asking(dashboard(app, open_health=True), client=("192.0.2.7", 5)) as client:
        assert client.get("/healthz") == {"status": "ok"}
        assert client.ask("GET", "/metrics").status_code == 403
    with asking(dashboard(app, open_health=True, health_lag=1e-9), client=("192.0.2.7", 5)) as client:
        assert client.get("/healthz", 503) == {"status": "failing"}


def test_every_look_is_among_those_that_are_listed() -> None:
    assert len(LOOKS) + len(ACTIONS) == len(ENDPOINTS)
