-- beat.sql: a worker lives.
-- takes id, now, info
insert into laneway_worker (id, beat, at, info) values (?, 1, ?, ?)
on conflict (id) do update set beat = beat + 1, at = excluded.at, info = excluded.info
