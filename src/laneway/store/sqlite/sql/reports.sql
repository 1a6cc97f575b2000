-- reports.sql: what is not added up.
-- returns at, report
select at, report from laneway_report order by number
