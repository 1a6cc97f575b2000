-- recent_add.sql: the runs that one exchange settled.
-- takes the number of the last, the runs
insert into laneway_recent (last, runs) values (?, ?)
