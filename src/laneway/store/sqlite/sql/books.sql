-- books.sql: what is counted and remembered: the books, recent runs, results, counters.

-- books_read: what the store counts, and the last runs.
-- returns books, tail
select books, tail from laneway_meta

-- books_write: write it back; the write lock makes that safe.
-- takes books, tail
update laneway_meta set books = ?, tail = ?

-- recent_add: the runs that one exchange settled.
-- takes the number of the last, the runs
insert into laneway_recent (last, runs) values (?, ?)

-- recent_read: the last runs, newest first, in portions.
select runs from laneway_recent order by last desc

-- recent_trim: forget what lies before a run.
-- takes its number
delete from laneway_recent where last <= ?

-- result_add: keep a result.
-- takes id, until, value
insert into laneway_result (id, until, value) values (?, ?, ?)
on conflict (id) do update set until = excluded.until, value = excluded.value

-- result_find: a kept result.
-- takes id, now; returns value
select value from laneway_result where id = ? and until > ?

-- result_trim: forget results that have been kept long enough.
-- takes now
delete from laneway_result where until <= ?

-- count_add: add to a counter.
-- takes name, how many
insert into laneway_counter (name, value) values (?, ?)
on conflict (name) do update set value = value + excluded.value

-- count_read: the counters that record() keeps.
-- returns name, value
select name, value from laneway_counter
