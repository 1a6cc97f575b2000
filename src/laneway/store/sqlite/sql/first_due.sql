-- first_due.sql: when the first waiting job of a rank is due.
-- takes queue, rank; returns due or null
select min(due) from laneway_job where state < 2 and queue = ? and rank = ?
