-- meta_read.sql: the store's own counters.
-- returns now, seq, token, enqueued, processed, failed, retried, dead, cancelled, recovered, refused, runs
select now, seq, token, enqueued, processed, failed, retried, dead, cancelled, recovered, refused, runs from laneway_meta
