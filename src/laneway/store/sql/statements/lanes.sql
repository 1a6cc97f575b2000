-- lanes.sql: a collector's lanes and their payloads.

-- lane_claim_some: a worker claims a lane with some of its payloads, which were moved to the other side. The others gather.
update laneway_job set state = $running, worker = :worker, token = :token, next_due = :now, next_since = enqueued where id = :id

-- lane_find: a collector's lane.
select $columns from laneway_job where id = :id and side is not null

-- lanes_find: collectors' lanes. ids: JSON.
select $columns from laneway_job where id in ({ids}) and side is not null

-- lane_gather: set when the payloads that gather while their lane runs are due, and since when they gather; null: none gather.
update laneway_job set next_due = :due, next_since = :since where id = :id

-- lane_goes_on: a run has ended, and the gathered payloads now wait.
update laneway_job
set state = :state, place = next_due, due = next_due, enqueued = next_since, attempt = 0, ran = 0, worker = null, token = null,
    mark = null, lost = null, errors = null, notes = null, next_due = null, next_since = null
where id = :id

-- lane_move_due: change when a waiting lane is due; its attempts are counted from 0 again.
update laneway_job set state = :state, due = :due, attempt = 0 where id = :id

-- lane_push: insert a collector's lane, which waits; a lane that is in the store does not change.
insert into laneway_job (seq, id, queue, task, lane, rank, place, due, state, enqueued, side, body)
values (:seq, :id, :queue, :task, :lane, 0, :place, :due, :state, :enqueued, 0, :body)
on conflict (id) do nothing

-- lane_waits_again: a run has ended, and its payloads wait again, on the given side, together with the gathered ones.
update laneway_job
set state = :state, due = :due, attempt = :attempt, ran = :ran, lost = :lost, errors = :errors, side = :side, worker = null,
    token = null, mark = null, next_due = null, next_since = null
where id = :id

-- lane_walk: due lanes in the order of claiming.
-- returns seq, id, task, lane, attempt, enqueued, due, place, state, lost, side
select seq, id, task, lane, attempt, enqueued, due, place, state, lost, side
from laneway_job
where $waits and queue = :queue and rank = 0 and due <= :now
order by due, place, seq
limit :most

-- payload_add: a payload joins its lane, unless an equal one is there.
insert into laneway_payload (lane, side, score, arrival, digest, body) values (:lane, :side, :score, :arrival, :digest, :body)
on conflict (lane, side, digest) do nothing

-- payload_add_headers: as payload_add, for a payload that may have headers. payload_add is faster.
insert into laneway_payload (lane, side, score, arrival, digest, body, headers)
values (:lane, :side, :score, :arrival, :digest, :body, :headers)
on conflict (lane, side, digest) do nothing

-- payload_merge: a payload joins its lane. An equal one that is there becomes one with it: the larger score, the earlier arrival.
insert into laneway_payload as old (lane, side, score, arrival, digest, body)
values (:lane, :side, :score, :arrival, :digest, :body)
on conflict (lane, side, digest) do update
set score = case when excluded.score > old.score then excluded.score else old.score end,
    arrival = case when excluded.arrival < old.arrival then excluded.arrival else old.arrival end
where excluded.score > old.score or excluded.arrival < old.arrival

-- payload_dies: a payload dies and is kept. An equal one that is dead already becomes one with it, with the larger score.
-- returns seq: the given one if it is new
insert into laneway_job as old (seq, id, queue, task, lane, rank, place, due, state, attempt, enqueued, errors, score, body)
values (:seq, :id, :queue, :task, :lane, 0, :now, :now, $dead, :attempt, :enqueued, :errors, :score, :body)
on conflict (id) do update
set task = excluded.task, due = excluded.due, attempt = excluded.attempt, errors = excluded.errors,
    score = case when excluded.score > old.score then excluded.score else old.score end
returning seq

-- payload_drop: remove one payload.
delete from laneway_payload where lane = :lane and side = :side and score = :score and arrival = :arrival

-- payload_headers: set a payload's headers.
update laneway_payload set headers = :headers where lane = :lane and side = :side and digest = :digest

-- payload_named: the payload on one side of a lane that has a digest.
-- returns body, score, arrival, headers
select body, score, arrival, headers from laneway_payload where lane = :lane and side = :side and digest = :digest

-- payloads_read: a lane's payloads on one side, the oldest first.
-- returns body, score, arrival, headers
select body, score, arrival, headers from laneway_payload where lane = :lane and side = :side order by score, arrival limit :most

-- payloads_after: a lane's payloads on one side that come after one of them.
-- returns body, score, arrival, headers
select body, score, arrival, headers from laneway_payload
where lane = :lane and side = :side and (score, arrival) > (:score, :arrival)
order by score, arrival
limit :most

-- payloads_first: of a lane's payloads on one side, the one that arrived first.
-- returns body, score, arrival, headers
select body, score, arrival, headers from laneway_payload where lane = :lane and side = :side order by arrival limit 1

-- payloads_number: the number of payloads on one side of a lane, at most `most`.
-- returns the number
select count(*) from (select 1 from laneway_payload where lane = :lane and side = :side limit :most) counted

-- payloads_take: move the oldest payloads of one side to the other, up to and including a given one.
update laneway_payload set side = 1 - side
where lane = :lane and side = :side and (score, arrival) <= (:score, :arrival)

-- payloads_equal: payloads on one side of a lane that have an equal one on the other side.
-- returns lane, the other side, score, arrival, digest, body, headers; and arrival and headers of the equal one
select it.lane, other.side, it.score, it.arrival, it.digest, it.body, it.headers, other.arrival, other.headers
from laneway_payload it cross join laneway_payload other
where other.lane = it.lane and other.side = 1 - it.side and other.digest = it.digest and it.lane = :lane and it.side = :side

-- payloads_join: copy the payloads on one side of a lane to the other side, except those that have an equal one there.
insert into laneway_payload (lane, side, score, arrival, digest, body, headers)
select lane, 1 - side, score, arrival, digest, body, headers from laneway_payload where lane = :lane and side = :side
on conflict (lane, side, digest) do nothing

-- payloads_drop: delete the payloads on one side of a lane.
delete from laneway_payload where lane = :lane and side = :side

-- payloads_drop_all: delete all payloads of a lane.
delete from laneway_payload where lane = :lane
