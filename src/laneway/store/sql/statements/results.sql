-- results.sql: finished jobs with their results, recent runs and counters.

-- finish: keep a running job that ends, with its result. It leaves the jobs afterwards.
insert into laneway_finished
    (seq, id, queue, task, lane, rank, place, due, state, attempt, enqueued, worker, errors, notes, started, until, value, body)
select seq, id, queue, task, lane, rank, place, :finished, :state, attempt + :counts, enqueued, worker, errors, notes, :started,
       :until, :value, body
from laneway_job where id = :id and token = :token and worker = :worker and state = $running
on conflict (id) do update
set seq = excluded.seq, queue = excluded.queue, task = excluded.task, lane = excluded.lane, rank = excluded.rank,
    place = excluded.place, due = excluded.due, state = excluded.state, attempt = excluded.attempt, enqueued = excluded.enqueued,
    worker = excluded.worker, errors = excluded.errors, notes = excluded.notes, started = excluded.started,
    until = excluded.until, value = excluded.value, body = excluded.body

-- finished_result: the state and the result of a finished job.
-- returns state, task, value
select state, task, value from laneway_finished where id = :id and until > :now

-- finished_find: a finished job. Of a result that was kept by an older version nothing else is known.
select $finished from laneway_finished where id = :id and until > :now and task <> ''

-- finished_drop: forget a finished job.
delete from laneway_finished where id = :id

-- finished_trim: forget those that have been kept long enough.
delete from laneway_finished where until <= :now

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
