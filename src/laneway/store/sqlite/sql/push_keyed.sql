-- push_keyed.sql: take a job that may have a key or an end; if its id or an equal job is in the store, nothing changes.
-- takes seq, id, queue, task, lane, rank, place, due, enqueued, body, unique_key, expires
insert into laneway_job (seq, id, queue, task, lane, rank, place, due, state, enqueued, body, unique_key, expires)
values (?, ?, ?, ?, ?, ?, ?, ?, 0, ?, ?, ?, ?)
on conflict (id) do nothing
on conflict (unique_key) where unique_key is not null do nothing
