"""Relays are killed and frozen at any moment: what was committed runs once, in the order of its lane, and nothing else does."""

from __future__ import annotations

import logging
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from conftest import often
from outboxbench import Box

PROGRAM = str(Path(__file__).with_name("outbox_program.py"))


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_each_row_runs_once_whatever_relays_are_killed_or_frozen(kind: str, tmp_path: Path) -> None:
    box = Box(kind, tmp_path)
    seed = str(random.randrange(10**6))  # noqa: S311 - said below, so that a failure can be repeated

    command = [sys.executable, PROGRAM, box.app.url, box.url, box.address, str(often(4, 300)), seed, str(tmp_path)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=often(200, 3000))
    assert done.returncode == 0, f"seed {seed}: {done.stderr}"

    orders = sorted(int(id_) for (id_,) in box.ask("select id from orders"))
    ran = [line.split() for line in (tmp_path / "ran").read_text().splitlines()]
    saved = sorted(int(line) for line in (tmp_path / "saved").read_text().splitlines())
    harms = (tmp_path / "harms").read_text().splitlines()
    logging.getLogger("laneway").info("%s: %d orders, %s", kind, len(orders), dict(Counter(harms)))
    assert len(harms) >= often(4, 300)
    assert sorted(int(order) for order, _ in ran) == orders, f"seed {seed}"
    assert saved == [order for order in orders if order % 5 == 0], f"seed {seed}"
    for lane in {lane for _, lane in ran}:
        found = [int(order) for order, where in ran if where == lane]
        assert found == sorted(found), f"seed {seed}: lane {lane}"
    assert (box.status.waiting, box.status.aside) == (0, 0)
    box.close()
