"""Probes: what an orchestrator asks a fleet, answered by its supervisor, which loads no app and asks no store for it.

`/livez` is 200 while the supervisor's loop turns. `/readyz` is 200 while all workers claim and the store answers; else 503, and
the body says why.

Enters: HTTP requests.  Leaves: answers of one line.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

from laneway.errors import ConfigError
from laneway.fleet.readiness import Readiness

__all__ = ["Probes"]

#: A client has this long to send its request and to read the answer, seconds.
PATIENCE = 5.0
#: The most connections at a time: others are closed at once.
CONNECTIONS = 32
#: How often the server's thread looks whether it is to end, unless it is woken, seconds.
POLL = 0.5


class Probes:
    """The HTTP server of a supervisor."""

    def __init__(self, host: str, port: int, readiness: Readiness) -> None:
        try:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
            self._server = _Server(host, port, family, readiness)
        except OSError as error:
            raise ConfigError(f"--health-port {port}: {host} cannot be listened on there: {error.strerror or error}") from None
        self.port: int = self._server.server_address[1]  #: the one that was given, or found for 0
        self._thread = threading.Thread(target=self._server.serve_forever, args=[POLL], name="laneway-probes", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Answer no more."""
        with contextlib.suppress(OSError):  # wakes the thread on Linux; elsewhere it looks every half second
            self._server.socket.shutdown(socket.SHUT_RDWR)
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(1.0)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128  # with the usual 5 the kernel drops what comes at once, and clients try again after seconds

    def __init__(self, host: str, port: int, family: int, readiness: Readiness) -> None:
        self.address_family = family
        self.readiness = readiness
        self._connections = threading.BoundedSemaphore(CONNECTIONS)
        super().__init__((host, port), _Answer)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread, unless too many are under way."""
        if self._connections.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, then allow another connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._connections.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Leave a client that hangs up, or sends garbage, alone."""


class _Answer(BaseHTTPRequestHandler):
    timeout = PATIENCE

    def do_GET(self) -> None:
        """Answer a probe."""
        status, line = cast("_Server", self.server).readiness.answer(self.path)
        body = f"{line}\n".encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815 - as http.server calls it

    def version_string(self) -> str:
        """Return the name of the server, without its software and versions."""
        return "laneway"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as it is called there
        """Probes come every few seconds: none is worth a line."""
