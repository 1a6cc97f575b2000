-- beat.sql: a worker lives.
-- takes id, info
insert into laneway_worker (id, beat, info) values (?, 1, ?)
on conflict (id) do update set beat = beat + 1, info = excluded.info
