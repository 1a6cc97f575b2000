-- pushed.sql: which of the last push's jobs are in.
-- takes the last seq before it; returns seq
select seq from laneway_job where seq > ?
