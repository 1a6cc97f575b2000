-- replace.sql: a job that never started takes a new place, out of its lane's line.
-- takes the new seq, place, due, expires, the old seq
update laneway_job set seq = ?, place = ?, due = ?, expires = ?, state = 0, holds = 0 where seq = ?
