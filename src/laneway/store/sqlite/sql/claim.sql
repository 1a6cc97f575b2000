-- claim.sql: a job without a lane is a worker's.
-- takes worker, token, seq
update laneway_job set state = 3, worker = ?, token = ? where seq = ?
