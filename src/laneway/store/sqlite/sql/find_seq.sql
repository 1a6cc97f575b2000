-- find_seq.sql: the job at a place.
-- takes seq; returns the columns of a row
select seq, id, queue, task, lane, rank, place, due, state, holds, attempt, enqueued, worker, token, mark, lost, errors,
       unique_key, expires, ran, side, next_due, next_since, score
from laneway_job where seq = ?
