-- transfer.sql: read what is copied to another store, and write what is copied from one. See transfer.py.

-- export_jobs: jobs, lanes of collectors and dead payloads, by their sequence numbers.
-- returns the columns of a job, notes, body
select $columns, notes, body from laneway_job where seq > :after order by seq limit :most

-- export_lanes: lanes of collectors, by their sequence numbers.
-- returns seq, queue, lane, side
select seq, queue, lane, side from laneway_job where seq > :after and side is not null order by seq limit :most

-- export_records: finished jobs. Results that an older version kept have no record, so they are not copied.
-- returns the columns of a job, notes, body, started, until, value
select $finished, notes, body, started, until, value from laneway_finished
where seq > :after and until > :now and task <> ''
order by seq
limit :most

-- export_figures: all buckets of statistics.
-- returns level, at, figures
select level, at, figures from laneway_figures

-- taken_numbers: which of these sequence numbers jobs have.
-- returns seq
select seq from {table} where seq in ({numbers})

-- free_number: the first sequence number, from a given one on, that no job has.
-- returns seq
select :seq where not exists (select 1 from {table} where seq = :seq)
union all
select * from (
    select seq + 1 from {table} it
    where seq >= :seq and not exists (select 1 from {table} other where other.seq = it.seq + 1)
    order by seq
    limit 1
) gap
limit 1

-- take_job: insert a job without changes. Two queues of a Redis store may each have a job with this unique key: the job
-- that is inserted second loses it.
insert into laneway_job
    (seq, id, queue, task, lane, rank, place, due, state, holds, ran, attempt, enqueued, expires, lost, errors, notes, side,
     score, body, end_key, unique_key)
values
    (:seq, :id, :queue, :task, :lane, :rank, :place, :due, :state, :holds, :ran, :attempt, :enqueued, :expires, :lost, :errors,
     :notes, :side, :score, :body, :end_key,
     case when exists (select 1 from laneway_job where unique_key = :unique_key) then null else :same_key end)
on conflict (id) do nothing

-- take_record: insert a finished job without changes.
insert into laneway_finished
    (seq, id, queue, task, lane, rank, place, due, state, attempt, enqueued, worker, errors, notes, started, until, value, body)
values
    (:seq, :id, :queue, :task, :lane, :rank, :place, :due, :state, :attempt, :enqueued, :worker, :errors, :notes, :started, :until,
     :value, :body)
on conflict (id) do nothing

-- take_schedule: insert a schedule without changes.
insert into laneway_schedule as old (name, last_slot, paused_by, entry) values (:name, :last, :by, :entry)
on conflict (name) do update set last_slot = excluded.last_slot, paused_by = excluded.paused_by, entry = excluded.entry

-- tally_jobs: the number of jobs in each state.
-- returns state, number
select state, count(*) from laneway_job group by state

-- tally_others: the number of payloads, schedules and records.
-- returns payloads, schedules, records
select (select count(*) from laneway_payload), (select count(*) from laneway_schedule),
       (select count(*) from laneway_finished where until > :now and task <> '')
