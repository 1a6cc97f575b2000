-- die.sql: a job gives up, is kept, and holds no lane.
-- takes when, attempt, errors, seq
update laneway_job
set state = 4, due = ?, attempt = ?, errors = ?, holds = 0, unique_key = null, expires = null,
    worker = null, token = null, mark = null, lost = null
where seq = ?
