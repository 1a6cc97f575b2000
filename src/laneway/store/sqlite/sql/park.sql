-- park.sql: wait behind the lane's holder, out of everybody's way.
-- takes seq
update laneway_job set state = 2 where seq = ?
