-- claim.sql: a job is a worker's; in a lane it holds that from now on.
-- takes worker, token, 1 if it has a lane, seq
update laneway_job set state = 3, worker = ?, token = ?, holds = ? where seq = ?
