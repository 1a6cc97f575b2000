-- report_add.sql: keep a report until it is added up.
-- takes at, report
insert into laneway_report (at, report) values (?, ?)
