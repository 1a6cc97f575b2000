-- in_stead.sql: the job that a pushed one met: with the same id, or equal to it.
-- takes id, seq, unique_key, seq; returns id
select id from laneway_job where id = ? and seq < ?
union all
select id from laneway_job where unique_key = ? and seq < ?
limit 1
