-- claims.sql: what all workers hold, in the order of claiming.
-- returns worker, id, task, queue, lane, token
select worker, id, task, queue, lane, token from laneway_job where state = 3 order by token
