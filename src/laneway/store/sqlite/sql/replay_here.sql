-- replay_here.sql: a dead job that holds its lane begins anew, at its old place. It has started: put off, it keeps the lane.
-- takes due, seq
update laneway_job set due = ?, state = 0, attempt = 0, ran = 1 where seq = ?
