-- fault_add.sql: a kind of failure was seen.
-- takes id, how often, now, now, sample
insert into laneway_fault (id, count, first, last, sample) values (?, ?, ?, ?, ?)
on conflict (id) do update set count = count + excluded.count, last = excluded.last, sample = excluded.sample
