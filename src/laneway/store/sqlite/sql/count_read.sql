-- count_read.sql: the counters that record() keeps.
-- returns name, value
select name, value from laneway_counter
