-- lane_walk.sql: due lanes in the order of claiming.
-- takes queue, now, how many
-- returns seq, id, task, lane, attempt, enqueued, due, place, lost, side
select seq, id, task, lane, attempt, enqueued, due, place, lost, side
from laneway_job
where state < 2 and queue = ? and rank = 0 and due <= ?
order by due, place, seq
limit ?
