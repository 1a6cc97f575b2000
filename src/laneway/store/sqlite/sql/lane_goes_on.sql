-- lane_goes_on.sql: a run is over, and what gathered begins to wait.
-- takes seq
update laneway_job
set state = 0, place = next_due, due = next_due, enqueued = next_since, attempt = 0, ran = 0, worker = null, token = null,
    mark = null, lost = null, errors = null, notes = null, next_due = null, next_since = null
where seq = ?
