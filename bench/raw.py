"""The least a job processor on SQLite has to do: insert, claim by one update, delete.

No lanes, no priorities, no counts, no tokens, nothing about who is alive.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

__all__ = ["Raw"]


class Raw:
    """One table and one partial index, as plain as can be."""

    def __init__(self, path: Path) -> None:
        self.connection = sqlite3.connect(path, isolation_level=None)
        self.connection.execute("pragma journal_mode = wal")
        self.connection.execute("pragma synchronous = normal")
        self.connection.execute("create table if not exists job (id text primary key, due integer, worker text, body blob)")
        self.connection.execute("create index if not exists due on job (due) where worker is null")

    def push(self, rows: list[tuple[str, int, bytes]]) -> None:
        """Insert rows in one transaction."""
        self.connection.execute("begin immediate")
        self.connection.executemany("insert into job (id, due, body) values (?, ?, ?)", rows)
        self.connection.execute("commit")

    def exchange(self, done: list[tuple[str]], limit: int, now: int) -> list[tuple[str]]:
        """Delete what is done and claim more, in one transaction."""
        self.connection.execute("begin immediate")
        self.connection.executemany("delete from job where id = ?", done)
        claimed = self.connection.execute(
            "update job set worker = 'w' where id in (select id from job where worker is null and due <= ? order by due limit ?) "
            "returning id, body",
            (now, limit),
        ).fetchall()
        self.connection.execute("commit")
        return [(row[0],) for row in claimed]

    def drain(self, limit: int, now: int) -> int:
        """Claim and delete until nothing is left; return how many."""
        done: list[tuple[str]] = []
        number = 0
        while claimed := self.exchange(done, limit, now):
            done = claimed
            number += len(claimed)
        return number
