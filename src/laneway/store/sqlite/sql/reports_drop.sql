-- reports_drop.sql: it is added up.
-- takes up to when
delete from laneway_report where at < ?
