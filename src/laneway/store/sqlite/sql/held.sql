-- held.sql: the job of a claim, if it is still held.
-- takes id, token, worker; returns the columns of a row
select seq, id, queue, task, lane, rank, place, due, state, holds, attempt, enqueued, worker, token, mark, lost, errors,
       unique_key, expires, ran, side, next_due, next_since, score
from laneway_job where id = ? and token = ? and worker = ? and state = 3
