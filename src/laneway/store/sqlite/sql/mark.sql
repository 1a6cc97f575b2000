-- mark.sql: ask something of a running job.
-- takes the mark, seq
update laneway_job set mark = ? where seq = ?
