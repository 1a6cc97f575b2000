"""A payment provider: a server of its own, which takes money and writes down every charge in a ledger of its own.

python provider.py PORT LEDGER [--latency SECONDS] [--no-bad-days]

    POST /charges   {"customer": 7, "cents": 1200}, with an Idempotency-Key if the caller has one: {"receipt": "charge-31"}
    POST /forget    forget all keys, as real providers do after a day or so

A key that it knows is answered with the receipt of the first charge. Without a key it charges whenever it is asked.
It has bad days, as all of them do, and always *after* it has charged:

    each 20th customer      an error, once
    each 200th customer     an answer that comes later than its callers wait, once

It commits before it answers, and may be killed in between. What it took is in the ledger, whatever its callers know.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TABLES = """
    pragma journal_mode = wal;
    pragma synchronous = normal;
    create table if not exists charges (id integer primary key, customer int, cents int, key text, calls int);
    create index if not exists charges_customer on charges (customer);
    create table if not exists keys (key text primary key, charge int);
"""
#: Longer than callers wait, see payments.py.
LATE = 1.5


class Ledger:
    """What the provider has charged, and the keys that it remembers."""

    def __init__(self, path: str) -> None:
        self._lock = threading.Lock()
        self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=30)
        self._database.executescript(TABLES)

    def charge(self, customer: int, cents: int, key: str | None) -> tuple[int, bool]:
        """Return the charge, and whether it is this customer's first one; committed."""
        with self._lock, self._database as ledger:
            ledger.execute("begin immediate")
            known = ledger.execute("select charge from keys where key = ?", [key]).fetchone()
            if known is not None:
                ledger.execute("update charges set calls = calls + 1 where id = ?", known)
                return known[0], False
            is_first = ledger.execute("select 1 from charges where customer = ?", [customer]).fetchone() is None
            made = ledger.execute("insert into charges (customer, cents, key, calls) values (?, ?, ?, 1)", [customer, cents, key])
            if key is not None:
                ledger.execute("insert into keys values (?, ?)", [key, made.lastrowid])
            return int(made.lastrowid or 0), is_first

    def forget(self) -> None:
        """Forget all keys."""
        with self._lock:
            self._database.execute("delete from keys")


class Desk(BaseHTTPRequestHandler):
    """Answers one caller, request after request."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    ledger: Ledger
    latency: float
    has_bad_days: bool

    def do_POST(self) -> None:
        """Charge, or forget."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path == "/forget":
            self.ledger.forget()
            self._answer(200, {})
            return
        asked = json.loads(body)
        customer = asked["customer"]
        charge, is_first = self.ledger.charge(customer, asked["cents"], self.headers.get("Idempotency-Key"))
        time.sleep(self.latency)
        is_bad_day = is_first and self.has_bad_days
        if is_bad_day and customer % 20 == 7:
            self._answer(500, {"error": "internal error"})
            return
        if is_bad_day and customer % 200 == 11:
            time.sleep(LATE)
        self._answer(200, {"receipt": f"charge-{charge}"})

    def _answer(self, status: int, told: dict[str, str]) -> None:
        body = json.dumps(told).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class Server(ThreadingHTTPServer):
    """Callers that have hung up are no news."""

    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_: object) -> None:
        """Say nothing."""


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(description="A payment provider with a ledger of its own.")
    parser.add_argument("port", type=int)
    parser.add_argument("ledger")
    parser.add_argument("--latency", type=float, default=0.0, help="seconds between a charge and its answer")
    parser.add_argument("--no-bad-days", action="store_true", help="answer everybody, in time")
    asked = parser.parse_args()
    Desk.ledger, Desk.latency, Desk.has_bad_days = Ledger(asked.ledger), asked.latency, not asked.no_bad_days
    Server(("127.0.0.1", asked.port), Desk).serve_forever()


if __name__ == "__main__":
    main()
