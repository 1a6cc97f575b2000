-- lane_waits_again.sql: a run is over, and its payloads wait again, on the given side with what gathered.
-- takes state, due, attempt, ran, lost, errors, side, seq
update laneway_job
set state = ?, due = ?, attempt = ?, ran = ?, lost = ?, errors = ?, side = ?, worker = null, token = null, mark = null,
    next_due = null, next_since = null
where seq = ?
