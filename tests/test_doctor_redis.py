"""What is examined of a Redis server, on real ones; only what a test cannot make a server do is judged by its words."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import redisbench
from laneway import App
from laneway.core.job import Job
from laneway.errors import StoreError
from laneway.ids import new_id
from laneway.store.findings import Finding
from workbench import until

if redisbench.why_not() and os.environ.get("CI") != "true":
    pytest.skip(redisbench.why_not(), allow_module_level=True)

from laneway.store.redis import RedisInspect, RedisStore, opening
from laneway.store.redis.checks import check_memory, check_replication, check_version

Start = Callable[..., redisbench.Server]


@pytest.fixture
def start() -> Iterator[Start]:
    """Servers that a test may configure and fill."""
    started: list[redisbench.Server] = []

    def one(*options: str) -> redisbench.Server:
        started.append(redisbench.Server(*options))
        return started[-1]

    yield one
    for server in started:
        server.remove()


def found(server: redisbench.Server | str) -> dict[str, Finding]:
    """Examine a server; return its findings by what they are about."""
    store = RedisStore(server if isinstance(server, str) else server.url)
    try:
        findings = RedisInspect(store).examine()
    finally:
        store.close()
    assert len({finding.what for finding in findings}) == len(findings)
    assert all(bool(finding.advice) == (finding.level != "ok") for finding in findings)
    return {finding.what: finding for finding in findings}


def levels(server: redisbench.Server, *what: str) -> list[str]:
    seen = found(server)
    return [seen[name].level for name in what]


def test_a_server_as_it_should_be(start: Start) -> None:
    own = start("--appendonly", "yes", "--appendfsync", "always", "--maxmemory", "1gb")

    seen = {name: finding.level for name, finding in found(own).items()}
    assert seen.pop("latency") in {"ok", "note"}  # a busy machine
    assert seen == dict.fromkeys(
        ("layout", "version", "eviction", "replication", "persistence", "memory", "clients", "sync", "slow"), "ok"
    )


@pytest.mark.parametrize(
    ("options", "level", "said"),
    [
        ((), "problem", "it keeps nothing on disk"),
        (("--save", "3600 1"), "note", "snapshots alone"),
        (("--appendonly", "yes"), "ok", "appendonly is on"),
    ],
)
def test_what_a_server_keeps_on_disk(start: Start, options: tuple[str, ...], level: str, said: str) -> None:
    persistence = found(start(*options))["persistence"]
    assert (persistence.level, said in persistence.found) == (level, True)


def test_a_server_that_cannot_save_is_a_problem(start: Start) -> None:
    own = start("--save", "3600 1")
    found(own)  # the version of the layout is written: there is something to save
    shutil.rmtree(own.folder)
    own.ask("BGSAVE")
    until(lambda: b"rdb_last_bgsave_status:err" in own.ask("INFO", "persistence"), "a save that fails")

    persistence = found(own)["persistence"]

    assert (persistence.level, "rdb_last_bgsave_status" in persistence.found) == ("problem", True)


@pytest.mark.parametrize(("sync", "level"), [("always", "ok"), ("everysec", "note"), ("no", "warning")])
def test_when_the_log_reaches_the_disk(start: Start, sync: str, level: str) -> None:
    own = start("--appendonly", "yes", "--appendfsync", sync)
    assert levels(own, "sync") == [level]
    own.ask("CONFIG", "SET", "appendonly", "no")
    assert "sync" not in found(own)


def test_a_server_that_evicts_is_a_problem_if_its_memory_is_limited(start: Start) -> None:
    own = start("--maxmemory-policy", "allkeys-lru")
    assert levels(own, "eviction") == ["warning"]
    used = int(next(line for line in own.ask("INFO", "memory").splitlines() if line.startswith(b"used_memory:"))[12:])
    own.ask("CONFIG", "SET", "maxmemory", used + 1_000_000)
    assert levels(own, "eviction") == ["problem"]
    assert RedisInspect(RedisStore(own.url)).about().warning == found(own)["eviction"].found

    for number in range(30):
        own.ask("SET", f"other:{number}", "x" * 100_000)
    assert ", 1" in found(own)["eviction"].found or ", 2" in found(own)["eviction"].found  # so many keys are gone
    own.ask("CONFIG", "SET", "maxmemory-policy", "noeviction")
    assert levels(own, "eviction") == ["warning"], "what is lost is lost"


def test_memory_near_its_limit(start: Start) -> None:
    own = start()
    assert levels(own, "memory") == ["note"]
    own.ask("SET", "large", "x" * 20_000_000)
    used = int(next(line for line in own.ask("INFO", "memory").splitlines() if line.startswith(b"used_memory:"))[12:])
    for limit, level in ((2 * used, "ok"), (round(1.05 * used), "warning"), (used - 1_000_000, "problem")):
        own.ask("CONFIG", "SET", "maxmemory", limit)
        assert levels(own, "memory") == [level]


def test_memory_that_only_the_machine_limits() -> None:
    info = {"used_memory": "600", "maxmemory": "0", "total_system_memory": "1000"}
    assert check_memory(info).level == "warning"
    assert check_memory({**info, "used_memory": "100"}).level == "note"


def test_a_replica_is_a_problem_and_its_primary_is_not(start: Start) -> None:
    primary = start("--repl-diskless-sync-delay", "0")
    with contextlib.closing(App(primary.url)) as app:
        app.enqueue("app.task")
    replica = start("--replicaof", f"127.0.0.1 {primary.port}")
    until(lambda: b"master_link_status:up" in replica.ask("INFO", "replication"), "a replica that follows")
    until(lambda: b"state=online" in primary.ask("INFO", "replication"), "a primary that knows it")

    assert levels(replica, "replication") == ["problem"]
    assert (found(primary)["replication"].level, found(primary)["replication"].found) == ("ok", "a primary; replicas: 1")


@pytest.mark.parametrize(
    ("state", "lag", "level"), [("online", 1, "ok"), ("online", 6, "warning"), ("wait_bgsave", 0, "warning")]
)
def test_a_replica_that_does_not_keep_up(state: str, lag: int, level: str) -> None:
    info = {"role": "master", "slave0": f"ip=10.0.0.2,port=6379,state={state},offset=1,lag={lag}"}
    finding = check_replication(info)
    assert (finding.level, level == "ok" or "10.0.0.2:6379" in finding.found) == (level, True)


@pytest.mark.parametrize(
    ("info", "level"),
    [
        ({"redis_version": "6.0.16"}, "problem"), ({"redis_version": "6.2.0"}, "ok"), ({"redis_version": "7.0.15"}, "ok"),
        ({"redis_version": "7.2.4", "valkey_version": "9.1.2"}, "ok"), ({}, "ok"),
    ],
)  # fmt: skip
def test_versions_that_are_too_old(info: dict[str, str], level: str) -> None:
    assert check_version(info).level == level


def test_an_old_server_is_refused_in_the_same_words() -> None:
    class Old:
        def ask_all(self, _: object) -> list[bytes]:
            return [b"redis_version:5.0.3\r\n"]

    with pytest.raises(StoreError, match=r"^the store x: it is Redis 5\.0\.3, and Laneway needs Redis 6\.2 or newer"):
        opening.warn(Old(), "the store x")  # type: ignore[arg-type]


def test_connections_near_their_limit(start: Start) -> None:
    own = start("--maxclients", "40")
    assert levels(own, "clients") == ["ok"]
    with contextlib.ExitStack() as stack:
        for _ in range(37):
            stack.enter_context(socket.create_connection(("127.0.0.1", own.port)))
        until(lambda: b"connected_clients:38" in own.ask("INFO", "clients"), "many connections")
        assert levels(own, "clients") == ["warning"]


def test_a_command_that_took_long(start: Start) -> None:
    own = start("--enable-debug-command", "yes")
    own.ask("DEBUG", "SLEEP", "0.2")
    slow = found(own)["slow"]
    assert (slow.level, slow.found.startswith("DEBUG took 0.2 s, ")) == ("warning", True)
    own.ask("SLOWLOG", "RESET")
    assert levels(own, "slow") == ["ok"]


@contextlib.contextmanager
def far_away(server: redisbench.Server, seconds: float) -> Iterator[str]:
    """The address of a server behind a slow line, for one connection: what is sent arrives later."""

    def carry() -> None:
        near, _ = ear.accept()
        with near, socket.create_connection(("127.0.0.1", server.port)) as far:
            while True:
                for source in select.select([near, far], [], [], 10)[0]:
                    data = source.recv(65536)
                    if not data:
                        return
                    time.sleep(seconds if source is near else 0)
                    (far if source is near else near).sendall(data)

    with socket.create_server(("127.0.0.1", 0)) as ear:
        carrier = threading.Thread(target=carry)
        carrier.start()
        yield f"redis://127.0.0.1:{ear.getsockname()[1]}/0"
        carrier.join(10)
        assert not carrier.is_alive()


@pytest.mark.parametrize(("seconds", "level"), [(0.01, "note"), (0.06, "warning")])
def test_a_server_that_is_far_away(seconds: float, level: str) -> None:
    server = redisbench.emptied()

    def is_as_far() -> bool:
        with far_away(server, seconds) as url:
            return found(url)["latency"].level == level

    # Measured again where something else kept the machine busy during the few round trips.
    until(lambda: levels(server, "latency") == ["ok"], "a server that is near")
    until(is_as_far, f"one that is {seconds} s away: {level}")


def test_cluster_mode_is_warned_of(start: Start) -> None:
    node = start("--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf")
    node.ask("CLUSTER", "ADDSLOTS", *range(16384))
    until(lambda: b"cluster_state:ok" in node.ask("CLUSTER", "INFO"), "a cluster of one")
    assert levels(node, "cluster") == ["warning"]
    assert "cluster" not in found(redisbench.emptied())


def test_what_a_user_may_not_ask_is_said(start: Start) -> None:
    own = start("--appendonly", "yes")
    text = (Path(__file__).parent.parent / "docs" / "redis.md").read_text(encoding="utf-8")
    _, _, rest = text.partition("ACL SETUSER laneway on ")
    rules = rest.partition("```")[0].split()
    own.ask("ACL", "SETUSER", "laneway", "on", *rules)
    url = own.url.replace("redis://", "redis://laneway:secret@")

    rights = found(url)["rights"]  # as a user of docs/redis.md
    assert (rights.level, "may not call SLOWLOG," in rights.found) == ("note", True)
    assert found(url)["persistence"].level == "ok"

    own.ask("ACL", "SETUSER", "laneway", "-info", "-config|get")
    seen = found(url)
    assert set(seen) == {"layout", "latency", "rights"}
    assert "CONFIG, INFO, SLOWLOG" in seen["rights"].found
    own.ask("ACL", "SETUSER", "laneway", "+info")
    own.ask("CONFIG", "SET", "appendonly", "no")
    assert found(url)["persistence"].found == "it does not tell whether it keeps anything on disk"


def test_an_examination_writes_nothing(start: Start) -> None:
    own = start()
    store = RedisStore(own.url)
    store.push([Job(new_id(), "app.task", "default", b"[[],{}]")])
    before = own.ask("INFO", "persistence").partition(b"rdb_changes_since_last_save:")[2].split()[0]
    RedisInspect(store).examine(deep=True)
    assert own.ask("INFO", "persistence").partition(b"rdb_changes_since_last_save:")[2].split()[0] == before
    store.close()
