-- result_trim.sql: forget results that have been kept long enough.
-- takes now
delete from laneway_result where until <= ?
