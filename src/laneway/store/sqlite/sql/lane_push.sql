-- lane_push.sql: a collector's lane begins to wait; one that is in the store stays as it is.
-- takes seq, id, queue, task, lane, place, due, enqueued
insert into laneway_job (seq, id, queue, task, lane, rank, place, due, state, enqueued, side, body)
values (?, ?, ?, ?, ?, 0, ?, ?, 0, ?, 0, x'')
on conflict (id) do nothing
