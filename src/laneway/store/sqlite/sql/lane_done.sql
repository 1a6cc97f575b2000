-- lane_done.sql: a lane leaves the store by its claim, unless something gathers.
-- takes seq, id, token, worker
delete from laneway_job
where seq = ? and id = ? and token = ? and worker = ? and state = 3 and next_due is null and side is not null
