-- queue_find.sql: one queue.
-- takes name; returns as queue_read
select name, paused, ripe, scheduled, ready, retrying, blocked, running, dead from laneway_queue where name = ?
