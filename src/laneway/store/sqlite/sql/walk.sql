-- walk.sql: due jobs of one rank in the order of claiming, each with its lane's holder.
-- takes queue, rank, now, how many
-- returns seq, id, task, lane, attempt, enqueued, due, place, lost, unique_key, expires, body, holder
select seq, id, task, lane, attempt, enqueued, due, place, lost, unique_key, expires, body,
       (select h.seq from laneway_job h where h.holds = 1 and h.queue = j.queue and h.lane = j.lane)
from laneway_job j
where state < 2 and queue = ? and rank = ? and due <= ?
order by due, place, seq
limit ?
