"""`laneway outbox`, and what metrics, health and the doctor say about an outbox."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from clidesk import Desk, environment, open_desk
from laneway import App
from laneway.testing import wait_until
from webdesk import visiting


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    for made in open_desk(tmp_path, monkeypatch):
        monkeypatch.setenv("LANEWAY_OUTBOX", f"sqlite:///{tmp_path}/shop.db")
        made.app.inspect.counts()
        yield made


def ask(desk: Desk, sql: str) -> None:
    with sqlite3.connect(desk.folder / "shop.db") as connection:
        connection.execute(sql)
    connection.close()


def test_init_makes_the_tables_and_sql_prints_the_same(desk: Desk) -> None:
    printed = desk.run("outbox", "init", "--sql")
    assert not (desk.folder / "shop.db").exists()
    assert "create table if not exists laneway_outbox (" in printed

    assert "has an outbox" in desk.run("outbox", "init")
    other = sqlite3.connect(":memory:")
    other.executescript(printed)
    with sqlite3.connect(desk.folder / "shop.db") as made:
        schema = "select name, sql from sqlite_schema where name like 'laneway%' order by name"
        assert made.execute(schema).fetchall() == other.execute(schema).fetchall()
    made.close()
    other.close()


def test_without_tables_or_an_outbox_the_commands_say_so(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "cannot be used" in desk.mistake("outbox", "status", code=1)
    sqlite3.connect(desk.folder / "shop.db").execute("create table orders (id)").connection.close()
    assert "laneway outbox init" in desk.mistake("outbox", "status", code=1)
    monkeypatch.delenv("LANEWAY_OUTBOX")
    sys.modules.pop("app")
    assert "the app has no outbox" in desk.mistake("outbox", "status")


def test_status_shows_what_waits_and_what_was_set_aside(desk: Desk) -> None:
    desk.run("outbox", "init")
    ask(desk, """insert into laneway_outbox (job) values ('{"task": "app.add", "args": [1]}'), ('\x1b[31m')""")
    assert desk.json("outbox", "status")["waiting"] == 2

    desk.work()

    found = desk.json("outbox", "status")
    assert (found["waiting"], found["aside"], found["reasons"][0]["job"]) == (0, 1, "\x1b[31m")
    shown = desk.run("outbox", "status")
    assert "set aside  1" in shown
    assert "it is not a job that can be enqueued" in shown
    assert "\x1b" not in shown
    assert "1 row waits again" in desk.run("outbox", "retry")
    assert desk.json("outbox", "status")["waiting"] == 1


def test_config_shows_the_outbox_without_its_password(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    assert os.environ["LANEWAY_OUTBOX"] in desk.run("config")
    sys.modules.pop("app")
    monkeypatch.setenv("LANEWAY_OUTBOX", "postgresql://web:hunter22@localhost/shop")
    for shown in (desk.run("config"), desk.run("config", "--json"), desk.run("config", "--sources")):
        assert "hunter22" not in shown
        assert "postgresql://web:***@localhost/shop" in shown


def test_relay_carries_rows_in_the_foreground_until_it_is_stopped(desk: Desk) -> None:
    desk.run("outbox", "init")
    command = [sys.executable, "-m", "laneway", "outbox", "relay"]
    env = environment(LANEWAY_OUTBOX=os.environ["LANEWAY_OUTBOX"])
    with subprocess.Popen(command, cwd=desk.folder, env=env, stderr=subprocess.PIPE, text=True) as relay:
        ask(desk, """insert into laneway_outbox (job) values ('{"task": "app.add", "args": [1]}')""")
        wait_until(lambda: desk.app.inspect.counts()["ready"] == 1, timeout=60)
        assert desk.json("outbox", "status")["relayed"]
        relay.send_signal(signal.SIGTERM)
        _, said = relay.communicate(timeout=60)
    assert relay.returncode == 0
    assert "relay stopped: 1 row handed over" in said


def test_metrics_health_and_the_doctor_see_an_outbox_that_lags(desk: Desk) -> None:
    url = os.environ["LANEWAY_OUTBOX"]
    app = App(desk.url, outbox=url)
    with visiting(app) as client:
        assert "laneway_outbox_up 0" in client.ask("GET", "/metrics").text
        assert "the outbox cannot be read" in client.get("/healthz", 503)["reasons"][0]
        assert "problem  outbox" in desk.call("doctor").stdout

        desk.run("outbox", "init")
        seen = client.ask("GET", "/metrics").text
        assert "laneway_outbox_up 1" in seen
        assert "laneway_outbox_oldest_seconds 0" in seen
        assert client.get("/healthz")["status"] == "ok"
        assert "ok       outbox" in desk.call("doctor").stdout

        ask(desk, "insert into laneway_outbox (job) values ('x')")
        ask(desk, "update laneway_outbox set made = made - 600000000")
        assert re.search(r"laneway_outbox_oldest_seconds 60\d", client.ask("GET", "/metrics").text)
        assert "outbox: a row has waited 60" in client.get("/healthz", 503)["reasons"][0]
        assert "problem  outbox" in desk.call("doctor").stdout
    app.close()


def test_an_app_without_an_outbox_has_no_figures_of_one(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/jobs.db")
    with visiting(app) as client:
        assert "outbox" not in client.ask("GET", "/metrics").text
    app.close()
