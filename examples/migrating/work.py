"""What the shop does: plain functions. They stay as they are while the queue in front of them changes.

Each writes a line into a file, so that it can be counted afterwards who did what, and how often.
"""

from __future__ import annotations

import os
from pathlib import Path

LEDGER = Path(os.environ.get("LEDGER", "ledger.txt"))


def note(what: str) -> None:
    """Add a line to the ledger: one write, which no other can mix with."""
    with LEDGER.open("a", encoding="utf-8") as ledger:
        ledger.write(f"{os.environ.get('DONE_BY', 'nobody')} {what}\n")


def send_email(user: int) -> None:
    """Fail at the first attempt for every fifth user."""
    tried = LEDGER.with_suffix(f".{user}")
    if user % 5 == 0 and not tried.exists():
        tried.touch()
        raise ConnectionError("the mail server is busy")
    note(f"email {user}")


def charge(customer: int, number: int) -> None:
    """Take money: one customer's charges in the order of their numbers."""
    note(f"charge {customer} {number}")


def reserve(order: int) -> None:
    """First step of an order."""
    note(f"reserve {order}")


def pack(order: int) -> None:
    """Second step."""
    note(f"pack {order}")


def ship(order: int) -> None:
    """Third step."""
    note(f"ship {order}")


def price(cents: int) -> int:
    """Compute something that the caller waits for."""
    note(f"price {cents}")
    return cents * 119 // 100


def report() -> None:
    """Run every now and then."""
    note("report")
