-- forget.sql: a worker is gone.
-- takes id
delete from laneway_worker where id = ?
