-- push.sql: take a job; if its id or an equal job is in the store, nothing changes. It never looks at the lane.
-- takes seq, id, queue, task, lane, rank, place, due, enqueued, unique_key, expires, body
insert into laneway_job (seq, id, queue, task, lane, rank, place, due, state, enqueued, unique_key, expires, body)
values (?, ?, ?, ?, ?, ?, ?, ?, 0, ?, ?, ?, ?)
on conflict (id) do nothing
on conflict (unique_key) where unique_key is not null do nothing
