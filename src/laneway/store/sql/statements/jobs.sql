-- jobs.sql: jobs are pushed, claimed, parked, retried, removed, and changed by users' actions.

-- push: insert a job, unless its id is in the store. The lane is not looked at: a claim does that.
insert into laneway_job (seq, id, queue, task, lane, rank, place, due, state, enqueued, body)
values (:seq, :id, :queue, :task, :lane, :rank, :place, :due, :state, :enqueued, :body)
on conflict (id) do nothing

-- push_keyed: insert a job that may have a unique key or an expiry, unless its id or an equal job is in the store.
insert into laneway_job (seq, id, queue, task, lane, rank, place, due, state, enqueued, body, unique_key, end_key, expires)
values (:seq, :id, :queue, :task, :lane, :rank, :place, :due, :state, :enqueued, :body, :unique_key, :end_key, :expires)
on conflict (id) do nothing
on conflict (unique_key) where unique_key is not null do nothing

-- pushed: which jobs of the last push were inserted. before: the last seq before that push.
-- returns seq
select seq from laneway_job where seq > :before

-- prevented_by: the existing job that prevented a push: it has the pushed job's id, or its unique key.
-- returns id
select id from laneway_job where id = :id and seq < :seq
union all
select id from laneway_job where unique_key = :unique_key and seq < :seq
limit 1

-- find: the job with an id.
select $columns from laneway_job where id = :id

-- body: the stored body of a job.
select body from laneway_job where id = :id

-- held: the job of a claim, if it is still held: only a running job has a token.
select $columns from laneway_job where id = :id and token = :token and worker = :worker

-- running: the claims of a worker, in the order of claiming.
select $columns from laneway_job where worker = :worker and state = $running order by token

-- done: a job, or a lane in which nothing gathers, leaves the store by its claim.
delete from laneway_job where id = :id and token = :token and worker = :worker and next_due is null

-- finish_claim: a user's transaction finishes a run, if its claim is held and no user asked to cancel, delete or kill the job.
update laneway_job set finish = :finish where id = :id and token = :token and state = $running and mark is null and finish is null

-- finish_asked: why a claim cannot be finished; no row if it is not held.
-- returns mark, whether it is finished
select mark, finish is not null from laneway_job where id = :id and token = :token and state = $running

-- remove: a job leaves the store.
delete from laneway_job where id = :id

-- die: a job dies and is kept. It holds no lane, unless its death halts it.
update laneway_job
set state = $dead, due = :now, attempt = :attempt, errors = :errors, holds = :holds, unique_key = null, expires = null,
    worker = null, token = null, mark = null, lost = null
where id = :id

-- wait_again: put a job back into the due index; it keeps its place and its lane.
update laneway_job
set state = :state, due = :due, attempt = :attempt, ran = :ran, expires = :expires, lost = :lost, errors = :errors,
    worker = null, token = null
where id = :id

-- park: let a job wait behind its lane's holder; it leaves the due index.
update laneway_job set state = $blocked where seq = :seq

-- parked: the jobs that wait in a lane behind its holder, in order.
-- returns seq, id, task, lane, enqueued, expires
select seq, id, task, lane, enqueued, expires from laneway_job
where state = $blocked and queue = :queue and lane = :lane
order by place, seq
limit :most

-- let_out: make the next job of a lane, by place, its holder, and due. The previous holder has just left the lane.
update laneway_job set state = $ready, holds = 1
where seq = (select seq from laneway_job where state = $blocked and queue = :queue and lane = :lane order by place, seq limit 1)

-- walk: due jobs of the first rank greater than `above`, in the order of claiming, each with the holder of its lane, and with the
-- unique key that ends with its first claim.
-- returns seq, id, task, lane, attempt, enqueued, due, place, lost, unique_key, expires, body, holder, rank
select seq, id, task, lane, attempt, enqueued, due, place, lost, case when end_key is null then unique_key end, expires, body,
       (select h.seq from laneway_job h where h.holds = 1 and h.queue = j.queue and h.lane = j.lane), rank
from laneway_job j
where $waits and queue = :queue and due <= :now
  and rank = (select min(n.rank) from laneway_job n where n.$waits and n.queue = :queue and n.rank > :above)
order by due, place, seq
limit :most

-- claim: a worker claims a job without a lane, or a collector's lane. From now on new payloads gather on the lane's other side.
update laneway_job set state = $running, worker = :worker, token = :token, side = 1 - side where seq = :seq

-- claim_lane: a worker claims a job, which holds its lane from now on.
update laneway_job set state = $running, worker = :worker, token = :token, holds = 1 where seq = :seq

-- claimed_unique: end the unique key of a job that is claimed for the first time, unless the key lasts until the job's end.
update laneway_job set unique_key = null where seq = :seq

-- first_due: when the first waiting job of a rank is due.
-- returns due or null
select min(due) from laneway_job where $waits and queue = :queue and rank = :rank

-- next_rank: the next priority in use among waiting jobs.
-- returns a rank or null
select min(rank) from laneway_job where $waits and queue = :queue and rank > :rank

-- newly_due: jobs that have become due in one rank since the counts were made.
-- returns how many, and how many of them after a failure
select count(*), coalesce(sum(case when state = $retrying then 1 else 0 end), 0) from laneway_job
where $waits and queue = :queue and rank = :rank and due > :since and due <= :now

-- move_due: change when a waiting job is due; it keeps its place and its lane.
update laneway_job set state = :state, due = :due where id = :id

-- replace: give a job that never started a new place. If it held its lane, it does so no more.
update laneway_job set seq = :seq, place = :due, due = :due, expires = :expires, state = :state, holds = 0 where id = :id

-- replay: let a dead job start again, at a new place.
update laneway_job set seq = :seq, place = :now, due = :now, state = $ready, attempt = 0, ran = 0, $key_again where id = :id

-- replay_here: let a dead job that holds its lane start again, at its old place. It counts as started, so that it keeps the lane
-- if a user reschedules it.
update laneway_job set due = :now, state = $ready, attempt = 0, ran = 1, $key_again where id = :id

-- mark: mark a running job with a user's request.
update laneway_job set mark = :mark where id = :id

-- marks: the marks of a worker's runs.
-- returns id, mark
select id, mark from laneway_job where worker = :worker and state = $running and mark is not null

-- dead_oldest: dead jobs, in the order in which they died, except those that hold their lane.
-- returns id, queue, due
select id, queue, due from laneway_job where state = $dead and holds = 0 order by due, seq limit :most

-- note: store the notes of a run, if its claim is still held. A collector's claim has a row for each of its lanes.
update laneway_job set notes = :notes where token = :token and state = $running
