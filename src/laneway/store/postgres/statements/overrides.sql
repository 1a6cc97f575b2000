-- overrides.sql: shared statements that are written differently for PostgreSQL.

-- held: the job of a claim, if it is still held. The exchange locked this row when it began.
select $columns from laneway_job where id = :id and token = :token and worker = :worker for update

-- marks: the marks of a worker's runs.
-- returns id, mark
select id, mark from laneway_job where mark is not null and worker = :worker and state = $running

-- lane_walk: due lanes in the order of claiming, except rows that another transaction has locked.
select seq, id, task, lane, attempt, enqueued, due, place, state, lost, side
from laneway_job
where $waits and lane is not null and queue = :queue and due <= :now
order by due, place, seq
limit :most
for update skip locked

-- command_read: the commands that wait for a worker's next beat; no row if the store does not know the worker.
-- returns command
select command from laneway_worker where id = :id for update

-- dead_oldest: dead jobs, in the order in which they died, except those that hold their lane.
-- returns id, queue, due
select id, queue, due from laneway_job where state = $dead and holds = 0 order by due, seq limit :most for update skip locked

-- finished_trim: delete records whose time has passed.
delete from laneway_finished
where id in (select id from laneway_finished where until <= :now order by until limit 1000 for update skip locked)

-- running: the claims of a worker, in the order of claiming, except rows that another transaction has locked.
select $columns from laneway_job where worker = :worker and state = $running order by token for update skip locked

-- recent_read: rows of recent runs, the newest row first.
select convert_to(runs, 'UTF8') from laneway_recent order by last desc

-- workers: all workers that have sent a beat or hold claims.
-- returns id, beat, at, info; a worker that holds claims and never sent a beat has beat 0, and null as at and info
select id, beat, at, info from laneway_worker
union all
select distinct worker, 0, cast(null as bigint), cast(null as bytea) from laneway_job
where state = $running and worker not in (select id from laneway_worker)

-- workers_since: all workers that have sent a beat, and those that hold claims with this token or a later one. Dead entries of earlier
-- claims are not read.
-- returns id, beat, at, info; for a worker that holds claims another row, with beat 0, null, null and the first token
select id, beat, at, info, cast(null as bigint) from laneway_worker
union all
select worker, 0, null, null, min(token) from laneway_job where state = $running and token >= :since group by worker

-- forget: delete a worker and its fence.
with unfenced as (delete from laneway_fence where worker = :id) delete from laneway_worker where id = :id

-- first_due: when the first waiting job of a rank is due. Jobs in lanes have rank 0, and their own index.
select least(
    (select min(due) from laneway_job where $waits and lane is null and queue = :queue and rank = :rank),
    (select min(due) from laneway_job where $waits and lane is not null and queue = :queue and :rank = 0)
)

-- next_rank: the next priority in use among waiting jobs.
select min(rank) from (
    select min(rank) as rank from laneway_job where $waits and lane is null and queue = :queue and rank > :rank
    union all
    select 0 where :rank < 0 and (select min(due) from laneway_job where $waits and lane is not null and queue = :queue) is not null
) ranks

-- note: store the notes of a run, if its claim is still held and no open transaction is finishing it.
update laneway_job set notes = :notes
where seq in (select seq from laneway_job where token = :token and state = $running for update skip locked)
