-- lanes.sql: a collector's lanes and their payloads.

-- lane_claim_some: a lane is a worker's, with some of its payloads, which went to the other side: the rest gathers.
-- takes worker, token, next_due, seq
update laneway_job set state = 3, worker = ?, token = ?, next_due = ?, next_since = enqueued where seq = ?

-- lane_find: a collector's lane.
-- takes id; returns the columns of a row
select seq, id, queue, task, lane, rank, place, due, state, holds, attempt, enqueued, worker, token, mark, lost, errors,
       unique_key, expires, ran, side, next_due, next_since, score
from laneway_job where id = ? and side is not null

-- lane_gather: when what gathers while its lane runs is due, and since when it does; null: nothing gathers.
-- takes next_due, next_since, seq
update laneway_job set next_due = ?, next_since = ? where seq = ?

-- lane_goes_on: a run is over, and what gathered begins to wait.
-- takes seq
update laneway_job
set state = 0, place = next_due, due = next_due, enqueued = next_since, attempt = 0, ran = 0, worker = null, token = null,
    mark = null, lost = null, errors = null, notes = null, next_due = null, next_since = null
where seq = ?

-- lane_move_due: a lane that waits is due at another time.
-- takes state, due, attempt, seq
update laneway_job set state = ?, due = ?, attempt = ? where seq = ?

-- lane_push: a collector's lane begins to wait; one that is in the store stays as it is.
-- takes seq, id, queue, task, lane, place, due, enqueued
insert into laneway_job (seq, id, queue, task, lane, rank, place, due, state, enqueued, side, body)
values (?, ?, ?, ?, ?, 0, ?, ?, 0, ?, 0, x'')
on conflict (id) do nothing

-- lane_waits_again: a run is over, and its payloads wait again, on the given side with what gathered.
-- takes state, due, attempt, ran, lost, errors, side, seq
update laneway_job
set state = ?, due = ?, attempt = ?, ran = ?, lost = ?, errors = ?, side = ?, worker = null, token = null, mark = null,
    next_due = null, next_since = null
where seq = ?

-- lane_walk: due lanes in the order of claiming.
-- takes queue, rank, now, how many
-- returns seq, id, task, lane, attempt, enqueued, due, place, lost, side
select seq, id, task, lane, attempt, enqueued, due, place, lost, side
from laneway_job
where state < 2 and queue = ? and rank = ? and due <= ?
order by due, place, seq
limit ?

-- lanes: lanes that have something to do. Of those that jobs run in, the one that holds it stands for the lane, else the first
-- by place. Words in braces are put in by look_lanes.py.
-- takes waiting (as JSON: see lanes_waiting.sql), queue, name, now, value, after_queue, after_lane, limit
-- returns seq, queue, lane, task, id, state, attempt, due, collects, errors, size, value
with found as (
    select seq, queue, lane, state, attempt, due, side, holds, place from laneway_job where state = 2
    union all
    select seq, queue, lane, state, attempt, due, side, holds, place from laneway_job where state = 3 and lane is not null
    union all
    select seq, queue, lane, state, attempt, due, side, holds, place from laneway_job where state = 4 and holds = 1
    union all
    select seq, queue, lane, state, attempt, due, side, holds, place from laneway_job
    where seq in (select value from json_each(:waiting))
), heads as (
    select seq, queue, lane, state, attempt, due, side is not null as collects, count(*) as jobs,
           min(case when holds = 1 then '' else printf('%019d%019d', place, seq) end)
    from found
    where lane is not null and {terms}
    group by queue, lane
), sized as (
    select *, case when collects then (select count(*) from laneway_payload p where p.lane = heads.seq) else jobs end as size from heads
), ordered as (
    select *, {value} as value from sized
), page as (
    select * from ordered where {further} order by value {direction}, queue, lane limit :limit
)
select page.seq, page.queue, page.lane, job.task, job.id, page.state, page.attempt, page.due, page.collects, job.errors, page.size, page.value
from page join laneway_job job on job.seq = page.seq
order by page.value {direction}, page.queue, page.lane

-- lanes_waiting: of the jobs of a queue that wait and have no priority, those that are due first; of these the ones in lanes.
-- takes queue, how many to look at; returns seq
select seq from (
    select seq, lane from laneway_job where queue = ? and rank = 0 and state < 2 order by due, place, seq limit ?
) where lane is not null

-- payload_add: a payload joins its lane, unless an equal one is there.
-- takes lane, side, score, arrival, digest, body
insert into laneway_payload (lane, side, score, arrival, digest, body) values (?, ?, ?, ?, ?, ?)
on conflict (lane, side, digest) do nothing

-- payload_dies: a payload gives up and is kept. One that is dead already stays one, with the larger score.
-- takes seq, id, queue, task, lane, when, when, attempt, enqueued, errors, score, body
-- returns seq: the given one if it is new
insert into laneway_job (seq, id, queue, task, lane, rank, place, due, state, attempt, enqueued, errors, score, body)
values (?, ?, ?, ?, ?, 0, ?, ?, 4, ?, ?, ?, ?, ?)
on conflict (id) do update set task = excluded.task, due = excluded.due, attempt = excluded.attempt, errors = excluded.errors,
    score = max(score, excluded.score)
returning seq

-- payload_drop: one payload is gone.
-- takes lane, side, score, arrival
delete from laneway_payload where lane = ? and side = ? and score = ? and arrival = ?

-- payload_merge: a payload joins its lane. Equal ones are one, with the larger score and the earlier arrival.
-- takes lane, side, score, arrival, digest, body
insert into laneway_payload (lane, side, score, arrival, digest, body) values (?, ?, ?, ?, ?, ?)
on conflict (lane, side, digest) do update set score = max(score, excluded.score), arrival = min(arrival, excluded.arrival)
where excluded.score > score or excluded.arrival < arrival

-- payload_named: a payload of one side, by its digest.
-- takes lane, side, digest; returns body, score, arrival
select body, score, arrival from laneway_payload where lane = ? and side = ? and digest = ?

-- payloads_after: the same, after one of them.
-- takes lane, side, its score, its arrival, how many; returns body, score, arrival
select body, score, arrival from laneway_payload
where lane = ? and side = ? and (score, arrival) > (?, ?)
order by score, arrival
limit ?

-- payloads_drop: what is on one side of a lane is gone.
-- takes lane, side
delete from laneway_payload where lane = ? and side = ?

-- payloads_drop_all: what is in a lane is gone.
-- takes lane
delete from laneway_payload where lane = ?

-- payloads_equal: what is on one side of a lane and has an equal one on the other, as rows of the other side.
-- takes the other side, lane, the side; returns lane, side, score, arrival, digest, body
select it.lane, other.side, it.score, it.arrival, it.digest, it.body
from laneway_payload it cross join laneway_payload other on other.lane = it.lane and other.side = ? and other.digest = it.digest
where it.lane = ? and it.side = ?

-- payloads_first: of a lane's payloads on one side the one that arrived first.
-- takes lane, side; returns body, score, arrival
select body, score, arrival from laneway_payload where lane = ? and side = ? order by arrival limit 1

-- payloads_join: what is on one side of a lane joins the other, but for those that have an equal one there.
-- takes the side to join, lane, the side to leave
insert into laneway_payload (lane, side, score, arrival, digest, body)
select lane, ?, score, arrival, digest, body from laneway_payload where lane = ? and side = ?
on conflict (lane, side, digest) do nothing

-- payloads_number: how many are on one side of a lane, counted so far.
-- takes lane, side, how far; returns how many
select count(*) from (select 1 from laneway_payload where lane = ? and side = ? limit ?)

-- payloads_read: a lane's payloads on one side, the oldest first.
-- takes lane, side, how many or -1; returns body, score, arrival
select body, score, arrival from laneway_payload where lane = ? and side = ? order by score, arrival limit ?

-- payloads_take: the oldest of a side, up to one of them, go to the other side.
-- takes the side to join, lane, the side to leave, the last one's score and arrival
update laneway_payload set side = ? where lane = ? and side = ? and (score, arrival) <= (?, ?)
