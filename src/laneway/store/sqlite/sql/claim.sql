-- claim.sql: a job without a lane is a worker's, or a collector's lane: what comes now gathers on its other side.
-- takes worker, token, seq
update laneway_job set state = 3, worker = ?, token = ?, side = 1 - side where seq = ?
