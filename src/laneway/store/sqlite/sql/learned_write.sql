-- learned_write.sql: keep what is known about a task.
-- takes task, seen
insert into laneway_learned (task, seen) values (?, ?) on conflict (task) do update set seen = excluded.seen
