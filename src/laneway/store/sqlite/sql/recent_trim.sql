-- recent_trim.sql: forget what lies before a run.
-- takes its number
delete from laneway_recent where last <= ?
