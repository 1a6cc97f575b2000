-- ripen.sql: what has become due in one rank since the counts were made.
-- takes queue, rank, ripe, now; returns how many, and how many of them after a failure
select count(*), coalesce(sum(state), 0) from laneway_job where state < 2 and queue = ? and rank = ? and due > ? and due <= ?
