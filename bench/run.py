"""Runs the benchmarks.

make bench                      all parts
make bench ARGS="push noop"     some
"""

from __future__ import annotations

import platform
import sqlite3
import sys

import collectors
import fleet
import store
import worker
from harness import folder

PARTS = store.PARTS | worker.PARTS | collectors.PARTS | fleet.PARTS

if __name__ == "__main__":
    wanted = sys.argv[1:] or list(PARTS)
    if unknown := [name for name in wanted if name not in PARTS]:
        sys.exit(f"no such part: {', '.join(unknown)}. There are: {', '.join(PARTS)}")
    print(f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, {platform.machine()}")
    for part_name in wanted:
        with folder() as part_folder:
            PARTS[part_name](part_folder)
