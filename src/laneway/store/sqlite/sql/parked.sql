-- parked.sql: who waits in a lane behind its holder, in order.
-- takes queue, lane, how many; returns seq, id, task, lane, enqueued, expires
select seq, id, task, lane, enqueued, expires from laneway_job where state = 2 and queue = ? and lane = ? order by place, seq limit ?
