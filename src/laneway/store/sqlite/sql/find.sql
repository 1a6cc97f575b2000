-- find.sql: the job with an id.
-- takes id; returns the columns of a row
select seq, id, queue, task, lane, rank, place, due, state, holds, attempt, enqueued, worker, token, mark, lost, errors,
       unique_key, expires, ran, side, next_due, next_since, score
from laneway_job where id = ?
