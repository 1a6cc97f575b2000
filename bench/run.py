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
import outbox
import pools
import postgres_worker
import raw_postgres
import raw_redis
import reads
import redis_store
import redis_worker
import stats
import store
import worker
from harness import folder

ON_REDIS = redis_store.PARTS | redis_worker.PARTS | balance.ON_REDIS | pools.ON_REDIS | desk.ON_REDIS | outbox.ON_REDIS
LOCAL = store.PARTS | worker.PARTS | fleet.PARTS | stats.PARTS | reads.PARTS | balance.PARTS | pools.PARTS
LOCAL |= desk.PARTS | instruments.PARTS
ON_POSTGRES = postgres_worker.PARTS | outbox.ON_POSTGRES
PARTS = LOCAL | ON_REDIS | ON_POSTGRES

if __name__ == "__main__":
    wanted = sys.argv[1:] or list(PARTS)
    if unknown := [name for name in wanted if name not in PARTS]:
        sys.exit(f"no such part: {', '.join(unknown)}. There are: {', '.join(PARTS)}")
    print(f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, {platform.machine()}")
    for parts, missing in ((ON_REDIS, raw_redis.missing), (ON_POSTGRES, raw_postgres.missing)):
        if any(name in parts for name in wanted) and (lacking := missing()):
            print(lacking)
            wanted = [name for name in wanted if name not in parts]
    for part_name in wanted:
        with folder() as part_folder:
            PARTS[part_name](part_folder)
