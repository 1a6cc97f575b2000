"""Runs the benchmarks.

make bench                      all parts
make bench ARGS="push noop"     some
"""

from __future__ import annotations

import platform
import sqlite3
import sys

import balance
import desk
import fleet
import instruments
import pools
import raw_redis
import reads
import redis_store
import redis_worker
import stats
import store
import worker
from harness import folder

ON_REDIS = redis_store.PARTS | redis_worker.PARTS | balance.ON_REDIS | pools.ON_REDIS | desk.ON_REDIS
LOCAL = store.PARTS | worker.PARTS | fleet.PARTS | stats.PARTS | reads.PARTS | balance.PARTS | pools.PARTS
LOCAL |= desk.PARTS | instruments.PARTS
PARTS = LOCAL | ON_REDIS

if __name__ == "__main__":
    wanted = sys.argv[1:] or list(PARTS)
    if unknown := [name for name in wanted if name not in PARTS]:
        sys.exit(f"no such part: {', '.join(unknown)}. There are: {', '.join(PARTS)}")
    print(f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, {platform.machine()}")
    if (lacking := raw_redis.missing()) and any(name in ON_REDIS for name in wanted):
        print(lacking)
        wanted = [name for name in wanted if name not in ON_REDIS]
    for part_name in wanted:
        with folder() as part_folder:
            PARTS[part_name](part_folder)
