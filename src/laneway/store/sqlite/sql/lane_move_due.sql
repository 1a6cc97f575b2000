-- lane_move_due.sql: a lane that waits is due at another time.
-- takes state, due, attempt, seq
update laneway_job set state = ?, due = ?, attempt = ? where seq = ?
