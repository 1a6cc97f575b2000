"""A Redis server of a benchmark's own, and the least a job processor on Redis has to do, by redis-py's own client.

The raw layout loses nothing when a process dies: a zset of what is due, a hash of bodies, and a set of what runs; one script
settles and claims. No lanes, no priorities, no counts, no tokens, no record of finished runs, nothing about who is alive.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import redis

__all__ = ["RawRedis", "Server", "missing", "served"]

_clients: Any = redis.Redis  # half of it is untyped

AOF = ("--appendonly", "yes", "--appendfsync", "everysec")

EXCHANGE = """
local due, body, running = KEYS[1], KEYS[2], KEYS[3]
if #ARGV > 2 then
    redis.call('SREM', running, unpack(ARGV, 3))
    redis.call('HDEL', body, unpack(ARGV, 3))
end
local ids = redis.call('ZRANGEBYSCORE', due, '-inf', ARGV[1], 'LIMIT', 0, ARGV[2])
if #ids == 0 then
    return {}
end
redis.call('ZREM', due, unpack(ids))
redis.call('SADD', running, unpack(ids))
return {ids, redis.call('HMGET', body, unpack(ids))}
"""


def missing() -> str:
    """Say what these benchmarks lack here; empty: nothing."""
    return (
        ""
        if shutil.which("redis-server")
        else "no redis-server here, the parts about Redis are left out: apt-get install redis-server"
    )


class Server:
    """A server on a free port of this machine, with its files in a folder."""

    def __init__(self, where: Path, *options: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.url = f"redis://127.0.0.1:{self.port}/0"
        where.mkdir(parents=True, exist_ok=True)
        command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(where), "--save", ""]
        self.process = subprocess.Popen([*command, "--logfile", "redis.log", *options])
        self.client = _clients.from_url(self.url, protocol=2)
        deadline = time.monotonic() + 10
        while True:
            with contextlib.suppress(redis.ConnectionError):
                self.client.ping()
                return
            assert time.monotonic() < deadline, "the server did not start"
            time.sleep(0.01)

    def used(self) -> int:
        """Return how much memory its data take, bytes."""
        info: dict[str, Any] = self.client.info("memory")
        return int(info["used_memory"])

    def stop(self) -> None:
        """End it."""
        self.client.close()
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def served(where: Path, *options: str) -> Generator[Server]:
    """Give a server that is gone afterwards."""
    server = Server(where, *options)
    try:
        yield server
    finally:
        server.stop()


class RawRedis:
    """Due, body and running, as plain as can be."""

    def __init__(self, server: Server) -> None:
        self.client = _clients.from_url(server.url, protocol=2)
        self._exchange: Any = self.client.register_script(EXCHANGE)

    def push(self, rows: Sequence[tuple[str, int, bytes]]) -> None:
        """Write rows in one round trip."""
        pipe = self.client.pipeline(transaction=False)
        pipe.zadd("raw:due", {id_: due for id_, due, _ in rows})
        pipe.hset("raw:body", mapping={id_: body for id_, _, body in rows})
        pipe.execute()

    def lpush(self, body: bytes) -> None:
        """Write one body to a list: the least there can be."""
        self.client.lpush("raw:list", body)

    def exchange(self, done: list[bytes], limit: int, now: int) -> list[bytes]:
        """Forget what is done and claim more, in one round trip."""
        answer = self._exchange(keys=["raw:due", "raw:body", "raw:running"], args=[now, limit, *done])
        ids: list[bytes] = answer[0] if answer else []
        return ids

    def drain(self, limit: int, now: int) -> int:
        """Claim and forget until nothing is left; return how many."""
        done: list[bytes] = []
        number = 0
        while claimed := self.exchange(done, limit, now):
            done = claimed
            number += len(claimed)
        return number
