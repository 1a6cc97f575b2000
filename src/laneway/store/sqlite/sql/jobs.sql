-- jobs.sql: jobs as they come, are claimed, wait, leave and are acted on.

-- push: take a job; an id that is in the store changes nothing. It never looks at the lane.
-- takes seq, id, queue, task, lane, rank, place, due, enqueued, body
insert into laneway_job (seq, id, queue, task, lane, rank, place, due, state, enqueued, body)
values (?, ?, ?, ?, ?, ?, ?, ?, 0, ?, ?)
on conflict (id) do nothing

-- push_keyed: take a job that may have a key or an end; if its id or an equal job is in the store, nothing changes.
-- takes seq, id, queue, task, lane, rank, place, due, enqueued, body, unique_key, expires
insert into laneway_job (seq, id, queue, task, lane, rank, place, due, state, enqueued, body, unique_key, expires)
values (?, ?, ?, ?, ?, ?, ?, ?, 0, ?, ?, ?, ?)
on conflict (id) do nothing
on conflict (unique_key) where unique_key is not null do nothing

-- pushed: which of the last push's jobs are in.
-- takes the last seq before it; returns seq
select seq from laneway_job where seq > ?

-- in_stead: the job that a pushed one met: with the same id, or equal to it.
-- takes id, seq, unique_key, seq; returns id
select id from laneway_job where id = ? and seq < ?
union all
select id from laneway_job where unique_key = ? and seq < ?
limit 1

-- find: the job with an id.
-- takes id; returns the columns of a row
select seq, id, queue, task, lane, rank, place, due, state, holds, attempt, enqueued, worker, token, mark, lost, errors,
       unique_key, expires, ran, side, next_due, next_since, score
from laneway_job where id = ?

-- held: the job of a claim, if it is still held.
-- takes id, token, worker; returns the columns of a row
select seq, id, queue, task, lane, rank, place, due, state, holds, attempt, enqueued, worker, token, mark, lost, errors,
       unique_key, expires, ran, side, next_due, next_since, score
from laneway_job where id = ? and token = ? and worker = ? and state = 3

-- done: a job, or a lane in which nothing gathers, leaves the store by its claim.
-- takes id, token, worker
delete from laneway_job where id = ? and token = ? and worker = ? and state = 3 and next_due is null

-- remove: a job leaves the store.
-- takes seq
delete from laneway_job where seq = ?

-- die: a job gives up and is kept. It holds no lane, unless its death halts it.
-- takes when, attempt, errors, whether it holds, seq
update laneway_job
set state = 4, due = ?, attempt = ?, errors = ?, holds = ?, unique_key = null, expires = null,
    worker = null, token = null, mark = null, lost = null
where seq = ?

-- wait_again: back into the due index; place and lane are kept.
-- takes state, due, attempt, ran, expires, lost, errors, seq
update laneway_job
set state = ?, due = ?, attempt = ?, ran = ?, expires = ?, lost = ?, errors = ?, worker = null, token = null
where seq = ?

-- park: wait behind the lane's holder, out of everybody's way.
-- takes seq
update laneway_job set state = 2 where seq = ?

-- parked: who waits in a lane behind its holder, in order.
-- takes queue, lane, how many; returns seq, id, task, lane, enqueued, expires
select seq, id, task, lane, enqueued, expires from laneway_job where state = 2 and queue = ? and lane = ? order by place, seq limit ?

-- parked_before: how many wait in a parked job's lane before it.
-- takes id; returns how many
select count(*)
from laneway_job me join laneway_job o on o.state = 2 and o.queue = me.queue and o.lane = me.lane and (o.place, o.seq) < (me.place, me.seq)
where me.id = ? and me.state = 2

-- let_out: the lane's next by place becomes its holder, and due. The lane had a holder that has just left.
-- takes queue, lane
update laneway_job set state = 0, holds = 1
where seq = (select seq from laneway_job where state = 2 and queue = ? and lane = ? order by place, seq limit 1)

-- walk: due jobs of one rank in the order of claiming, each with its lane's holder.
-- takes queue, rank, now, how many
-- returns seq, id, task, lane, attempt, enqueued, due, place, lost, unique_key, expires, body, holder
select seq, id, task, lane, attempt, enqueued, due, place, lost, unique_key, expires, body,
       (select h.seq from laneway_job h where h.holds = 1 and h.queue = j.queue and h.lane = j.lane)
from laneway_job j
where state < 2 and queue = ? and rank = ? and due <= ?
order by due, place, seq
limit ?

-- claim: a job without a lane is a worker's, or a collector's lane: what comes now gathers on its other side.
-- takes worker, token, seq
update laneway_job set state = 3, worker = ?, token = ?, side = 1 - side where seq = ?

-- claim_lane: a job is a worker's, and holds its lane from now on.
-- takes worker, token, seq
update laneway_job set state = 3, worker = ?, token = ?, holds = 1 where seq = ?

-- claimed_unique: a job is claimed for the first time: from now on it stands in no equal job's way.
-- takes seq
update laneway_job set unique_key = null where seq = ?

-- first_due: when the first waiting job of a rank is due.
-- takes queue, rank; returns due or null
select min(due) from laneway_job where state < 2 and queue = ? and rank = ?

-- next_rank: the next priority in use among waiting jobs.
-- takes queue, the rank before; returns a rank or null
select min(rank) from laneway_job where state < 2 and queue = ? and rank > ?

-- ripen: what has become due in one rank since the counts were made.
-- takes queue, rank, ripe, now; returns how many, and how many of them after a failure
select count(*), coalesce(sum(state), 0) from laneway_job where state < 2 and queue = ? and rank = ? and due > ? and due <= ?

-- move_due: a waiting job is due at another time; place and lane are kept.
-- takes state, due, seq
update laneway_job set state = ?, due = ? where seq = ?

-- replace: a job that never started takes a new place, out of its lane's line.
-- takes the new seq, place, due, expires, the old seq
update laneway_job set seq = ?, place = ?, due = ?, expires = ?, state = 0, holds = 0 where seq = ?

-- replay: a dead job begins anew, at a new place.
-- takes the new seq, place, due, the old seq
update laneway_job set seq = ?, place = ?, due = ?, state = 0, attempt = 0, ran = 0 where seq = ?

-- replay_here: a dead job that holds its lane begins anew, at its old place. It has started: put off, it keeps the lane.
-- takes due, seq
update laneway_job set due = ?, state = 0, attempt = 0, ran = 1 where seq = ?

-- mark: ask something of a running job.
-- takes the mark, seq
update laneway_job set mark = ? where seq = ?

-- marks: what is asked of a worker's runs.
-- takes worker; returns id, mark
select id, mark from laneway_job where worker = ? and state = 3 and mark is not null

-- dead_oldest: dead jobs in the order of dying, but for those that hold their lane.
-- takes how many; returns seq, queue, due
select seq, queue, due from laneway_job where state = 4 and holds = 0 order by due, seq limit ?

-- claims: what all workers hold, in the order of claiming.
-- returns worker, id, task, queue, lane, token
select worker, id, task, queue, lane, token from laneway_job where state = 3 order by token

-- running: what a worker holds, in the order of claiming.
-- takes worker; returns the columns of a row
select seq, id, queue, task, lane, rank, place, due, state, holds, attempt, enqueued, worker, token, mark, lost, errors,
       unique_key, expires, ran, side, next_due, next_since, score
from laneway_job where worker = ? and state = 3 order by token

-- note: what a run tells about itself, if it still holds its claim. A collector's claim has several rows.
-- takes notes, token
update laneway_job set notes = ? where token = ? and state = 3
