-- reporter_write.sql: a worker reports; changes nothing if it has told this before.
-- takes worker, number of the report, now
insert into laneway_reporter (worker, number, at) values (?, ?, ?)
on conflict (worker) do update set number = excluded.number, at = excluded.at where number < excluded.number
