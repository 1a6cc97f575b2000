"""Whatever is sent: no mistake of ours (500), no hang, and no look changes anything."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conftest import often
from laneway import App
from laneway.web.endpoint import Endpoint
from laneway.web.site import Site
from webdesk import ACTIONS, DEADLINE, LOOKS, Client, Shop, visiting

EVERY_STORE = True

pytestmark = pytest.mark.model

WORDS = [
    "", "0", "-1", "1e9", "nan", "seq:1", "seq:²", "seq:99999999999999999999", "seq:1:mail", "seq::", "[1,2]",
    '[true,1e999,3]', "dead", "mail", "sync", "o/1 ?", "c-2", "login", "\x00", "ready", "-lag", "size", "2", "true",
    "9" * 400, "é", "💥", "..", "%", "'", '"', '["x","y","z",1]', '[1,"sync","o/1 ?",1]', "null", "{}", "w-1", "nightly",
    "5m", "1e400d", "2030-01-01T00:00Z", "0001-01-01T00:00Z", "9999-12-31T23:59:59+00:00", "io", "cpu",
    '[99999999999999999999,"sync","o",1]', '[1,"sync","o",-9223372036854775809]', "[false,1.0,9223372036854775808]",
]  # fmt: skip
texts = st.sampled_from(WORDS) | st.text(max_size=30)
names = st.sampled_from(["state", "queue", "limit", "after", "lane", "x", ""]) | st.text(max_size=5)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def filled(path: str, text: str) -> str:
    for name in ("{id}", "{queue}", "{name:path}"):
        path = path.replace(name, quote(text or "x", safe="" if "path" not in name else "/"))
    return path


def some(endpoint: Endpoint, inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    known = st.sampled_from(endpoint.takes) if endpoint.takes else names
    return st.dictionaries(known, inner, max_size=4) | st.dictionaries(names, inner, max_size=2)


looks = st.sampled_from(LOOKS).flatmap(lambda one: st.tuples(st.just(one), texts, some(one, texts)))
acts = st.sampled_from(ACTIONS).flatmap(lambda one: st.tuples(st.just(one), texts, some(one, values)))
tries = settings(max_examples=often(60, 3_000), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


def expected(client: Client, method: str, path: str, **more: Any) -> None:
    answer = client.ask(method, path, **more)
    assert answer.status_code in {200, 202, 307, 400, 404, 405, 409, 413, 415, 422} or path == "/healthz", (
        path,
        more,
        answer.text,
    )
    if answer.status_code >= 400 and path != "/healthz":
        assert set(answer.json()["error"]) == {"kind", "message"}
        assert "\n" not in answer.json()["error"]["message"]


@pytest.mark.timeout(240)
def test_looks_answer_whatever_is_asked_and_change_nothing(app: App) -> None:
    shop = Shop(app).fill()
    before = shop.snapshot()
    with visiting(app) as client:

        @tries
        @given(looks)
        def check(asked: tuple[Endpoint, str, dict[str, str]]) -> None:
            endpoint, text, query = asked
            expected(client, "GET", filled(endpoint.path, text), params=query)

        check()
    assert shop.snapshot() == before


@pytest.mark.timeout(240)
def test_actions_answer_whatever_is_sent(app: App) -> None:
    Shop(app).fill()
    with visiting(app) as client:

        @tries
        @given(acts, st.booleans())
        def check(asked: tuple[Endpoint, str, dict[str, Any]], strict: bool) -> None:
            endpoint, text, body = asked
            sent = json.dumps(body, ensure_ascii=strict, allow_nan=True).encode(errors="replace")
            expected(client, "POST", filled(endpoint.path, text), content=sent, headers={"content-type": "application/json"})

        check()
        site: Site = client.site.state.laneway
        for operation in site.operations.list():
            assert operation.finished.wait(DEADLINE)
            assert operation.error is None or operation.error.status != 500, operation.document


@tries
@given(st.binary(max_size=60), st.sampled_from(["application/json", "APPLICATION/JSON;x", "text/html", "", "\xff"]))
def test_any_bytes_are_a_body(content: bytes, kind: str) -> None:
    with visiting(App("sqlite://")) as client:
        headers = {b"content-type": kind.encode("latin-1")}
        expected(client, "POST", "/api/v1/jobs/delete_all", content=content, headers=headers)


@tries
@given(st.text(max_size=40))
def test_any_path_is_answered(path: str) -> None:
    with visiting(App("sqlite://")) as client:
        expected(client, "GET", "/api/v1/" + quote(path, safe="/"))
