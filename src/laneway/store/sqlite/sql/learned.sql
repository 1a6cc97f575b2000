-- learned.sql: what is known about tasks.
-- returns task, seen
select task, seen from laneway_learned
