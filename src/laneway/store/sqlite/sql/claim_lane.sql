-- claim_lane.sql: a job is a worker's, and holds its lane from now on.
-- takes worker, token, seq
update laneway_job set state = 3, worker = ?, token = ?, holds = 1 where seq = ?
