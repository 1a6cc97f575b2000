"""FastAPI and Starlette: the store opens with the program, jobs have typed endpoints, the dashboard is behind its users."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest

pytest.importorskip("fastapi")
from fastapi import Depends, FastAPI, Header, HTTPException
from fastapi.testclient import TestClient
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.exceptions import HTTPException as HTTPError
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route

from laneway import App, JobHandle, Retry
from laneway.contrib import starlette
from laneway.contrib.fastapi import Jobs, JobStatus, dashboard, get_jobs, job_routes, job_status, lifespan
from laneway.errors import StoreUnavailable
from laneway.store.inspection import JobInfo
from workbench import burst

HERE = "http://localhost"


class Receipt(BaseModel):
    """What a charge returns."""

    cents: int


@dataclass
class Letter:
    """What a task with a dataclass returns."""

    lines: set[str]


class Odd(msgspec.Struct):
    """What pydantic does not know."""

    number: int


class Desk:
    """An app, its tasks, and a program around them."""

    def __init__(self, app: App) -> None:
        self.jobs = app

        @app.task(keep_result=60, retry=Retry(times=1, backoff=0))
        def charge(cents: int) -> Receipt:
            if cents < 0:
                raise ValueError(f"{cents} cents")
            return Receipt(cents=cents)

        @app.task(keep_result=60)
        def write(line: str) -> Letter:
            return Letter({line})

        @app.task(keep_result=60)
        def odd() -> Odd:
            return Odd(7)

        @app.task
        def forget() -> None: ...

        self.charge, self.write, self.odd, self.forget = charge, write, odd, forget

    def client(self, api: Any, **more: Any) -> TestClient:
        return TestClient(api, base_url=HERE, **more)


@pytest.fixture
def desk(app: App) -> Desk:
    return Desk(app)


def program(desk: Desk) -> FastAPI:
    api = FastAPI(lifespan=lifespan(desk.jobs))
    api.include_router(job_routes(desk.jobs), prefix="/any")
    api.include_router(job_routes(desk.charge), prefix="/charges")

    @api.get("/letters/{id}")
    async def letter(id: str) -> JobStatus[Letter]:  # noqa: A002
        found = await job_status(desk.write, id)
        assert found.result is None or found.result.lines == {"hello"}
        return found

    return api


# -- the life of a program ---------------------------------------------------------------------------------------


def test_the_store_opens_and_closes_with_the_program(file_app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []
    api = FastAPI(lifespan=lifespan(file_app))
    assert file_app._stores is None
    with TestClient(api):
        assert file_app._stores is not None
        monkeypatch.setattr(file_app, "close", lambda: closed.append("closed"))
    assert closed == ["closed"]


def test_a_lifespan_of_the_program_is_inside_of_ours(app: App) -> None:
    seen: list[str] = []

    @asynccontextmanager
    async def own(program: Any) -> AsyncIterator[dict[str, str]]:
        seen.append(f"opens {type(program).__name__}, {app._stores is not None}")
        yield {"bank": "First Bank"}
        seen.append("closes")

    api = FastAPI(lifespan=lifespan(app, own))

    @api.get("/")
    async def show(request: Request, jobs: Jobs) -> list[Any]:
        return [request.state.bank, jobs is app]

    with TestClient(api) as client:
        assert client.get("/").json() == ["First Bank", True]
    assert seen == ["opens FastAPI, True", "closes"]


def test_a_program_that_fails_to_start_closes_the_store(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []
    monkeypatch.setattr(app, "close", lambda: closed.append("closed"))

    @asynccontextmanager
    async def own(_: Any) -> AsyncIterator[None]:
        raise RuntimeError("no bank")
        yield

    async def live() -> None:
        async with lifespan(app, own)(None):
            pass

    with pytest.raises(RuntimeError, match="no bank"):
        asyncio.run(live())
    assert closed == ["closed"]


def test_a_store_that_is_away_keeps_nobody_from_starting(caplog: pytest.LogCaptureFixture) -> None:
    away = App("redis://127.0.0.1:1/0")
    api = FastAPI(lifespan=lifespan(away))
    api.include_router(job_routes(away), prefix="/jobs")

    @api.get("/")
    async def show() -> str:
        return "here"

    with TestClient(api) as client:
        assert client.get("/").json() == "here"
        answer = client.get("/jobs/some-job")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert "is it running" in answer.json()["detail"]
    assert "the store could not be opened" in caplog.text


def test_a_test_looks_at_its_jobs_after_the_program_has_ended(desk: Desk) -> None:
    with desk.jobs.testing("fake") as jobs:
        with TestClient(program(desk)):
            desk.charge.enqueue(5)
        assert [job.args for job in jobs.jobs] == [[5]]


def test_without_a_lifespan_the_dependency_says_what_to_write(app: App) -> None:
    api = FastAPI()

    @api.get("/")
    async def show(jobs: Jobs) -> str:
        return jobs.url

    with pytest.raises(RuntimeError, match=r"FastAPI\(lifespan=lifespan\(jobs\)\)"):
        TestClient(api).get("/")
    api.dependency_overrides[get_jobs] = lambda: app
    assert TestClient(api).get("/").json() == app.url


# -- how a job stands --------------------------------------------------------------------------------------------


def test_a_job_in_fastapi_from_its_enqueue_to_its_result(desk: Desk) -> None:
    with desk.client(program(desk)) as client:
        job = desk.charge.enqueue(450)
        before = client.get(f"/charges/{job.id}").json()
        assert (before["state"], before["ended"], before["result"], before["finished_at"]) == ("ready", False, None, None)
        burst(desk.jobs)
        after = client.get(f"/charges/{job.id}").json()
        assert (after["state"], after["ended"], after["attempt"], after["result"]) == ("done", True, 1, {"cents": 450})
        assert after["enqueued_at"] <= after["started_at"] <= after["finished_at"]
        assert client.get(f"/any/{job.id}").json() == after
        assert not {"args", "kwargs", "traceback", "worker"} & {*after}, "these are not for everybody"


def test_a_job_that_dies_in_fastapi_shows_its_errors_without_tracebacks(desk: Desk) -> None:
    with desk.client(program(desk)) as client:
        job = desk.charge.enqueue(-1)
        burst(desk.jobs)
        found = client.get(f"/charges/{job.id}").json()
    assert (found["state"], found["ended"], found["result"]) == ("dead", True, None)
    assert [(error["attempt"], error["kind"], error["message"]) for error in found["errors"]] == [
        (1, "ValueError", "-1 cents"),
        (2, "ValueError", "-1 cents"),
    ]
    assert all({*error} == {"attempt", "at", "kind", "message"} for error in found["errors"])


@pytest.mark.parametrize("id_", ["nobody", "ä", "a b", "%00", "x" * 300])
def test_an_unknown_job_is_not_found_in_fastapi(desk: Desk, id_: str) -> None:
    with desk.client(program(desk)) as client:
        for path in ("/any/{}", "/charges/{}", "/any/{}/events"):
            answer = client.get(path.format(id_))
            assert (answer.status_code, "is in the store" in answer.json()["detail"]) == (404, True), path


def test_a_router_for_a_task_shows_no_job_of_another(desk: Desk) -> None:
    with desk.client(program(desk)) as client:
        other = desk.write.enqueue("hello")
        assert client.get(f"/charges/{other.id}").status_code == 404
        assert client.get(f"/charges/{other.id}/events").status_code == 404
        burst(desk.jobs)
        assert client.get(f"/charges/{other.id}").status_code == 404
        assert client.get(f"/any/{other.id}").json()["result"] == {"lines": ["hello"]}


def test_a_result_has_the_type_of_its_task(desk: Desk) -> None:
    with desk.client(program(desk)) as client:
        job = desk.write.enqueue("hello")
        assert client.get(f"/letters/{job.id}").json()["result"] is None
        burst(desk.jobs)
        assert client.get(f"/letters/{job.id}").json()["result"] == {"lines": ["hello"]}


def test_a_result_that_pydantic_does_not_know_is_shown_as_plain_values(desk: Desk) -> None:
    api = FastAPI()
    api.include_router(job_routes(desk.odd), prefix="/odd")
    job = desk.odd.enqueue()
    burst(desk.jobs)
    with desk.client(api) as client:
        assert client.get(f"/odd/{job.id}").json()["result"] == {"number": 7}
        assert client.get("/openapi.json").status_code == 200


def test_a_finished_job_without_a_record_is_known_for_a_while(desk: Desk) -> None:
    job = desk.forget.enqueue()
    burst(desk.jobs)
    with desk.client(program(desk)) as client:
        found = client.get(f"/any/{job.id}").json()
    assert (found["state"], found["ended"], found["result"], found["enqueued_at"]) == ("done", True, None, None)


def test_the_schema_has_the_models(desk: Desk) -> None:
    schema = program(desk).openapi()
    paths, models = schema["paths"], schema["components"]["schemas"]
    assert {*paths} == {"/any/{id}", "/any/{id}/events", "/charges/{id}", "/charges/{id}/events", "/letters/{id}"}
    answers = paths["/charges/{id}"]["get"]["responses"]
    assert answers["200"]["content"]["application/json"]["schema"]["$ref"].endswith("/JobStatus_Receipt_")
    assert answers["404"]["content"]["application/json"]["schema"]["$ref"].endswith("/Trouble")
    assert {"$ref": "#/components/schemas/Receipt"} in models["JobStatus_Receipt_"]["properties"]["result"]["anyOf"]
    assert {*models["JobStatus_Receipt_"]["properties"]["state"]["enum"]} > {"ready", "running", "done", "dead"}
    assert [*paths["/any/{id}/events"]["get"]["responses"]["200"]["content"]] == ["text/event-stream"]


def test_routes_are_behind_the_programs_own_dependencies(desk: Desk) -> None:
    def user(x_user: Annotated[str | None, Header()] = None) -> None:
        if x_user != "ada":
            raise HTTPException(401)

    api = FastAPI()
    api.include_router(job_routes(desk.jobs), prefix="/jobs", dependencies=[Depends(user)])
    job = desk.charge.enqueue(1)
    burst(desk.jobs)
    with desk.client(api) as client:
        for path in (f"/jobs/{job.id}", f"/jobs/{job.id}/events"):
            assert client.get(path).status_code == 401
            assert client.get(path, headers={"x-user": "ada"}).status_code == 200


# -- what endpoints return ---------------------------------------------------------------------------------------


def test_endpoints_may_return_handles_and_what_inspect_returns(desk: Desk) -> None:
    api = FastAPI()

    @api.post("/plain")
    async def plain() -> Any:
        return await desk.charge.aenqueue(1)

    @api.post("/typed")
    async def typed() -> JobHandle[Receipt]:
        return await desk.charge.aenqueue(2)

    @api.get("/plain/{id}")
    async def look(id: str) -> Any:  # noqa: A002
        return await desk.jobs.ainspect.job(id)

    @api.get("/typed/{id}")
    async def look_typed(id: str) -> JobInfo:  # noqa: A002
        return await desk.jobs.job(id).ainfo()

    @api.get("/all")
    async def look_at_all() -> dict[str, Any]:
        return {"jobs": await desk.jobs.ainspect.jobs(), "queues": await desk.jobs.ainspect.queues()}

    with desk.client(api) as client:
        made = [client.post(path).json() for path in ("/plain", "/typed")]
        assert [(one["task"], one["created"]) for one in made] == [(desk.charge.name, True)] * 2
        for one in made:
            found = client.get(f"/plain/{one['id']}").json()
            assert found == client.get(f"/typed/{one['id']}").json() == dict(desk.jobs.job(one["id"]).info())
            assert found["state"] == "ready"
        everything = client.get("/all").json()
        assert [job["id"] for job in everything["jobs"]] == [one["id"] for one in made]
        assert everything["queues"][0]["name"] == "default"
        schema = client.get("/openapi.json").json()["paths"]["/typed"]["post"]["responses"]["200"]
        assert {*schema["content"]["application/json"]["schema"]["properties"]} == {"id", "task", "created"}


# -- the dashboard -----------------------------------------------------------------------------------------------


def may(x_user: Annotated[str | None, Header()] = None) -> tuple[str | None, str]:
    if x_user is None:
        raise HTTPException(303, headers={"location": "/login"})
    return {"boss": "act", "ada": "read"}.get(x_user), x_user


def guarded(app: App) -> FastAPI:
    api = FastAPI()
    api.include_router(dashboard(app, may, secret="s" * 32), prefix="/ops/jobs")
    return api


@pytest.fixture
def guests(desk: Desk) -> Iterator[TestClient]:
    with desk.client(guarded(desk.jobs), follow_redirects=False) as client:
        yield client


def test_the_dashboard_is_behind_a_dependency(guests: TestClient) -> None:
    answer = guests.get("/ops/jobs/")
    assert (answer.status_code, answer.headers["location"]) == (303, "/login")
    assert guests.get("/ops/jobs/", headers={"x-user": "eve"}).status_code == 403
    page = guests.get("/ops/jobs/", headers={"x-user": "ada"})
    assert (page.status_code, "Overview" in page.text, 'href="/ops/jobs/jobs' in page.text) == (200, True, True)
    style = re.findall(r"/ops/jobs/static/[^\"]+\.css[^\"]*", page.text)[0]
    assert guests.get(style, headers={"x-user": "ada"}).status_code == 200
    moved = guests.get("/ops/jobs", headers={"x-user": "ada"})
    assert (moved.status_code, moved.headers["location"].endswith("/ops/jobs/")) == (307, True)
    assert "/ops/jobs/{rest}" not in guests.get("/openapi.json").json()["paths"]


def test_the_dependency_says_who_may_act_and_the_audit_names_them(
    desk: Desk, guests: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "laneway.audit")
    job = desk.charge.enqueue(1)
    path = f"/ops/jobs/api/v1/jobs/{job.id}/cancel"
    assert guests.get("/ops/jobs/api/v1/session", headers={"x-user": "boss"}).json()["who"] == "boss"
    assert guests.post(path, headers={"x-user": "ada"}).status_code == 403
    assert guests.post(path, headers={"x-user": "boss", "cookie": "a=b"}).json()["error"]["kind"] == "csrf"
    assert guests.post(path, headers={"x-user": "boss"}).json()["changed"] == 1
    assert [line for line in caplog.messages if 'who="boss"' in line and "done (200)" in line]


def test_a_page_of_one_process_may_act_at_another(desk: Desk) -> None:
    job = desk.charge.enqueue(1)
    browser = {"x-user": "boss", "cookie": "a=b"}
    with desk.client(guarded(desk.jobs)) as one, desk.client(guarded(desk.jobs)) as two:
        token = one.get("/ops/jobs/api/v1/session", headers=browser).json()["csrf_token"]
        answer = two.post(f"/ops/jobs/api/v1/jobs/{job.id}/cancel", headers={**browser, "x-csrf-token": token})
    assert answer.status_code == 200


@pytest.mark.parametrize("path", ["/ops/jobs/", "/shop/ops/jobs/"], ids=["taken away by a proxy", "kept"])
def test_the_dashboard_is_below_the_prefix_of_a_proxy(desk: Desk, path: str) -> None:
    with desk.client(guarded(desk.jobs), root_path="/shop") as client:
        page = client.get(path, headers={"x-user": "boss"})
        assert (page.status_code, 'href="/shop/ops/jobs/jobs' in page.text) == (200, True)


# -- Starlette ---------------------------------------------------------------------------------------------------


def test_plain_starlette_has_it_too(desk: Desk) -> None:
    async def start(request: Request) -> JSONResponse:
        assert request.state.laneway is desk.jobs
        return JSONResponse((await desk.charge.aenqueue(int(request.query_params["cents"]))).as_dict())

    def judge(request: Request) -> Literal["read"] | None:
        return "read" if request.headers.get("x-user") == "ada" else None

    site = Starlette(
        routes=[
            Route("/charges", start, methods=["POST"]),
            Mount("/charges", routes=starlette.job_routes(desk.charge)),
            Mount("/jobs", starlette.dashboard(desk.jobs, auth=judge)),
        ],
        lifespan=starlette.lifespan(desk.jobs),
    )
    with desk.client(site) as client:
        job = client.post("/charges", params={"cents": 3}).json()
        assert client.get(f"/charges/{job['id']}").json()["state"] == "ready"
        burst(desk.jobs)
        assert client.get(f"/charges/{job['id']}").json()["result"] == {"cents": 3}
        assert '"state":"done"' in client.get(f"/charges/{job['id']}/events").text
        assert client.get("/charges/nobody").status_code == 404
        assert client.get("/jobs/").status_code == 403
        assert client.get("/jobs/", headers={"x-user": "ada"}).status_code == 200


def test_the_status_of_a_store_in_trouble_is_a_503(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(_: str) -> None:
        raise StoreUnavailable("it is away: is it running?")

    monkeypatch.setattr(desk.jobs.inspect, "job", away)
    with pytest.raises(HTTPError) as raised:
        asyncio.run(starlette.job_status(desk.jobs, "some"))
    assert (raised.value.status_code, raised.value.detail) == (503, "it is away: is it running?")


@pytest.mark.parametrize(("module", "missing", "extra"), [("fastapi", "fastapi", "fastapi"), ("starlette", "starlette", "web")])
def test_without_its_extra_a_module_says_what_to_install(module: str, missing: str, extra: str, tmp_path: Path) -> None:
    code = f"import sys; sys.modules['{missing}'] = None; import laneway.contrib.{module}"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert f'pip install "laneway[{extra}]"' in done.stderr.splitlines()[-1]
