-- die.sql: a job gives up and is kept. It holds no lane, unless its death halts it.
-- takes when, attempt, errors, whether it holds, seq
update laneway_job
set state = 4, due = ?, attempt = ?, errors = ?, holds = ?, unique_key = null, expires = null,
    worker = null, token = null, mark = null, lost = null
where seq = ?
