-- next_rank.sql: the next priority in use among waiting jobs.
-- takes queue, the rank before; returns a rank or null
select min(rank) from laneway_job where state < 2 and queue = ? and rank > ?
