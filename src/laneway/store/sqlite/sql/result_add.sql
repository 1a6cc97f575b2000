-- result_add.sql: keep a result.
-- takes id, until, value
insert into laneway_result (id, until, value) values (?, ?, ?)
on conflict (id) do update set until = excluded.until, value = excluded.value
