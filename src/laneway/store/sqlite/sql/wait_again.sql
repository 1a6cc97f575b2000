-- wait_again.sql: back into the due index; place and lane are kept.
-- takes state, due, attempt, ran, expires, lost, errors, seq
update laneway_job
set state = ?, due = ?, attempt = ?, ran = ?, expires = ?, lost = ?, errors = ?, worker = null, token = null
where seq = ?
