-- results.sql: results, recent runs and counters.

-- result_add: keep a result.
insert into laneway_result (id, until, value) values (:id, :until, :value)
on conflict (id) do update set until = excluded.until, value = excluded.value

-- result_find: a kept result.
-- returns value
select value from laneway_result where id = :id and until > :now

-- result_trim: forget results that have been kept long enough.
delete from laneway_result where until <= :now

-- recent_add: some runs that were settled, and the number of the last.
insert into laneway_recent (last, runs) values (:last, :runs)

-- recent_read: the last runs, newest first, in portions.
select runs from laneway_recent order by last desc

-- recent_trim: forget runs up to a number.
delete from laneway_recent where last <= :last

-- count_add: add to a counter.
insert into laneway_counter as old (name, value) values (:name, :number)
on conflict (name) do update set value = old.value + excluded.value

-- count_read: the counters that reports bring.
-- returns name, value
select name, value from laneway_counter
