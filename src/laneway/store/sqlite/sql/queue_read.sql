-- queue_read.sql: all queues and their counts.
-- returns name, paused, ripe, scheduled, ready, retrying, blocked, running, dead
select name, paused, ripe, scheduled, ready, retrying, blocked, running, dead from laneway_queue order by name
