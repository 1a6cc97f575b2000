-- replay.sql: a dead job begins anew, at a new place.
-- takes the new seq, place, due, the old seq
update laneway_job set seq = ?, place = ?, due = ?, state = 0, attempt = 0, ran = 0 where seq = ?
