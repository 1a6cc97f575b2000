-- inspection.sql: queries of the inspection side. queries.py and lane_queries.py replace the words in braces.

-- jobs_shown: jobs with all columns that users see.
select $columns, notes, body, null, case when side is not null then (select count(*) from laneway_payload where lane = seq) end
from laneway_job

-- finished_shown: finished jobs with the columns of jobs_shown.
select $finished, notes, body, started, null from laneway_finished

-- list_jobs: some jobs in the order of arrival. shown: jobs_shown or finished_shown.
{shown} {by_arrival} where {terms} order by seq {direction} limit :limit

-- show_job: one job. shown: jobs_shown or finished_shown.
{shown} where {terms}

-- count_jobs: the number of jobs that match. table: that of jobs, or that of finished jobs.
select count(*) from {table} where {terms}

-- match_jobs: the ids of jobs that match, in the order of arrival.
-- returns id
select id from {table} where {terms} order by seq

-- match_job: one of these jobs, if it still matches.
select {columns} from {table} where id = :id and {terms}

-- arrival_of: the sequence number of a job.
-- returns seq
select seq from laneway_job where id = :id
union all
select seq from laneway_finished where id = :id
limit 1

-- arrival_at: the sequence number of the job that follows `look` others in the order of arrival.
-- returns seq
select seq from {table} where {further} order by seq {direction} limit 1 offset :look

-- where_ready: the ready jobs, read from the index of waiting jobs. pairs: queues and the ranks in use there.
-- returns seq
select job.seq from ({pairs}) pair cross join laneway_job job
where job.queue = pair.queue and job.rank = pair.rank and job.$waits and job.due <= :now

-- where_scheduled: the jobs that are due later, read from the index of waiting jobs. pairs: as in where_ready.
select job.seq from ({pairs}) pair cross join laneway_job job
where job.queue = pair.queue and job.rank = pair.rank and job.$waits and job.due > :now

-- where_retrying: as where_scheduled, which includes the retrying jobs: the caller's condition leaves only these.
select job.seq from ({pairs}) pair cross join laneway_job job
where job.queue = pair.queue and job.rank = pair.rank and job.$waits and job.due > :now

-- where_blocked: the blocked jobs, read from their index. in_queue: a condition.
select seq from laneway_job where state = $blocked{in_queue}

-- where_running: the running jobs, read from their index. in_queue: a condition.
select seq from laneway_job where state = $running{in_queue}

-- where_dead: the dead jobs, read from their two indexes. in_queue: a condition.
select seq from laneway_job where state = $dead and holds = 0{in_queue}
union all
select seq from laneway_job where state = $dead and holds = 1{in_queue}

-- where_nothing: no jobs, for a state that has none.
select seq from laneway_job where false

-- parked_before: how many parked jobs of its lane come before a parked job.
select count(*)
from laneway_job me join laneway_job o
on o.state = $blocked and o.queue = me.queue and o.lane = me.lane and (o.place, o.seq) < (me.place, me.seq)
where me.id = :id and me.state = $blocked

-- lanes: lanes with work. A lane of jobs is represented by its holder; if it has none, by its first job in the order of places.
-- The value `waiting` has the seqs that waiting_in_lanes or waiting_in_lane returned.
-- returns seq, queue, lane, task, id, state, attempt, due, collects, errors, size, value
with found as (
    select seq, queue, lane, state, attempt, due, side, holds, place from laneway_job where state = $blocked
    union all
    select seq, queue, lane, state, attempt, due, side, holds, place from laneway_job where state = $running and lane is not null
    union all
    select seq, queue, lane, state, attempt, due, side, holds, place from laneway_job where state = $dead and holds = 1
    union all
    select seq, queue, lane, state, attempt, due, side, holds, place from laneway_job where seq in ({waiting})
), heads as (
    select seq, queue, lane, state, attempt, due, side is not null as collects,
           count(*) over (partition by queue, lane) as jobs,
           row_number() over (partition by queue, lane order by holds desc, place, seq) as number
    from found
    where lane is not null and {terms}
), sized as (
    select seq, queue, lane, state, attempt, due, collects,
           case when collects then (select count(*) from laneway_payload p where p.lane = heads.seq) else jobs end as size
    from heads where number = 1
), ordered as (
    select *, {value} as value from sized
), page as (
    select * from ordered where {further} order by value {direction}, queue, lane limit :limit
)
select page.seq, page.queue, page.lane, job.task, job.id, page.state, page.attempt, page.due, page.collects, job.errors, page.size, page.value
from page join laneway_job job on job.seq = page.seq
order by page.value {direction}, page.queue, page.lane

-- waiting_in_lanes: of the first `most` jobs of a queue that wait and have no priority, in the order of claiming, those in lanes.
-- returns seq
select seq from (
    select seq, lane from laneway_job where queue = :queue and rank = 0 and $waits order by due, place, seq limit :most
) waiting where lane is not null

-- waiting_in_lane: the waiting jobs in lanes with this name.
-- returns seq
select seq from laneway_job where lane = :lane and $waits

-- claims: the claims of all workers, in the order of claiming.
-- returns worker, id, task, queue, lane, token
select worker, id, task, queue, lane, token from laneway_job where state = $running order by token
