-- queue_write.sql: write a queue and its counts, new or not.
-- takes name, paused, ripe, scheduled, ready, retrying, blocked, running, dead
insert into laneway_queue (name, paused, ripe, scheduled, ready, retrying, blocked, running, dead)
values (?, ?, ?, ?, ?, ?, ?, ?, ?)
on conflict (name) do update
set paused = excluded.paused, ripe = excluded.ripe, scheduled = excluded.scheduled, ready = excluded.ready,
    retrying = excluded.retrying, blocked = excluded.blocked, running = excluded.running, dead = excluded.dead
