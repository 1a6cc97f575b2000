-- lane_done.sql: a lane leaves the store by its claim, unless something gathers or was asked of it.
-- takes seq, id, token, worker
delete from laneway_job
where seq = ? and id = ? and token = ? and worker = ? and state = 3 and mark is null and next_due is null and side is not null
