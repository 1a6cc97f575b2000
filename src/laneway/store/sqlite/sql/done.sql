-- done.sql: a job, or a lane in which nothing gathers, leaves the store by its claim.
-- takes id, token, worker
delete from laneway_job where id = ? and token = ? and worker = ? and state = 3 and next_due is null
