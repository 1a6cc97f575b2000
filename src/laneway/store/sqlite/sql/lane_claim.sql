-- lane_claim.sql: a lane is a worker's, with all its payloads: what comes now gathers on the other side.
-- takes worker, token, seq
update laneway_job set state = 3, worker = ?, token = ?, side = 1 - side where seq = ?
