-- marks.sql: what is asked of a worker's runs.
-- takes worker; returns id, mark
select id, mark from laneway_job where worker = ? and state = 3 and mark is not null
