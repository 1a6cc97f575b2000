-- faults.sql: kinds of failures, the last seen first.
-- takes limit
-- returns id, count, first, last, sample
select id, count, first, last, sample from laneway_fault order by last desc, id limit ?
