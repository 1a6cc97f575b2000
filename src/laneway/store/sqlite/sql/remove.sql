-- remove.sql: a job leaves the store.
-- takes seq
delete from laneway_job where seq = ?
