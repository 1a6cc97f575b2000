-- lane_walk.sql: due lanes in the order of claiming.
-- takes queue, rank, now, how many
-- returns seq, id, task, lane, attempt, enqueued, due, place, lost, side
select seq, id, task, lane, attempt, enqueued, due, place, lost, side
from laneway_job
where state < 2 and queue = ? and rank = ? and due <= ?
order by due, place, seq
limit ?
