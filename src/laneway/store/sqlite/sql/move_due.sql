-- move_due.sql: a waiting job is due at another time; place and lane are kept.
-- takes state, due, seq
update laneway_job set state = ?, due = ? where seq = ?
