-- payload_dies.sql: a payload gives up and is kept. One that is dead already stays one, with the larger score.
-- takes seq, id, queue, task, lane, when, when, attempt, enqueued, errors, score, body
-- returns seq: the given one if it is new
insert into laneway_job (seq, id, queue, task, lane, rank, place, due, state, attempt, enqueued, errors, score, body)
values (?, ?, ?, ?, ?, 0, ?, ?, 4, ?, ?, ?, ?, ?)
on conflict (id) do update set task = excluded.task, due = excluded.due, attempt = excluded.attempt, errors = excluded.errors,
    score = max(score, excluded.score)
returning seq
