-- lane_claim_some.sql: a lane is a worker's, with some of its payloads, which went to the other side: the rest gathers.
-- takes worker, token, next_due, seq
update laneway_job set state = 3, worker = ?, token = ?, next_due = ?, next_since = enqueued where seq = ?
