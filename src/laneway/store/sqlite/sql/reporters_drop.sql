-- reporters_drop.sql: forget who has not reported for long.
-- takes up to when
delete from laneway_reporter where at < ?
