-- results.sql: finished jobs with their results, recent runs and counters.

-- finish: keep the record of a running job that ends, with its result. A later statement deletes the job.
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

-- finished_find: a finished job. A result that an older version kept has no record, and is not found here.
select $finished from laneway_finished where id = :id and until > :now and task <> ''

-- finished_drop: delete the record of a finished job.
delete from laneway_finished where id = :id

-- finished_trim: delete records whose time has passed.
delete from laneway_finished where until <= :now

-- recent_add: add some settled runs as one row, with the number of the last of them.
insert into laneway_recent (last, runs) values (:last, :runs)

-- recent_read: rows of recent runs, the newest row first.
select runs from laneway_recent order by last desc

-- recent_trim: delete runs up to a number.
delete from laneway_recent where last <= :last

-- count_add: add to a counter.
insert into laneway_counter as old (name, value) values (:name, :number)
on conflict (name) do update set value = old.value + excluded.value

-- count_read: the counters that workers' reports add to.
-- returns name, value
select name, value from laneway_counter
