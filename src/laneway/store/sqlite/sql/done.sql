-- done.sql: a job leaves the store by its claim, unless something was asked of it.
-- takes id, token, worker
delete from laneway_job where id = ? and token = ? and worker = ? and state = 3 and mark is null
