-- push.sql: take a job; an id that is in the store changes nothing. It never looks at the lane.
-- takes seq, id, queue, task, lane, rank, place, due, enqueued, body
insert into laneway_job (seq, id, queue, task, lane, rank, place, due, state, enqueued, body)
values (?, ?, ?, ?, ?, ?, ?, ?, 0, ?, ?)
on conflict (id) do nothing
