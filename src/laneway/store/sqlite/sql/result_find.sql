-- result_find.sql: a kept result.
-- takes id, now; returns value
select value from laneway_result where id = ? and until > ?
