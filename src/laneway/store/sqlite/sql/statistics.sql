-- statistics.sql: figures, failures by kind, and what was learned.

-- arrived: what arrived and is not added up.
-- returns at, queue, task, number
select at, queue, task, number from laneway_arrived

-- arrived_add: count what arrived.
-- takes at, queue, task, number
insert into laneway_arrived (at, queue, task, number) values (?, ?, ?, ?)
on conflict (at, queue, task) do update set number = number + excluded.number

-- arrived_drop: it is added up.
-- takes up to when
delete from laneway_arrived where at < ?

-- fault_add: a kind of failure was seen.
-- takes id, how often, now, now, sample
insert into laneway_fault (id, count, first, last, sample) values (?, ?, ?, ?, ?)
on conflict (id) do update set count = count + excluded.count, last = excluded.last, sample = excluded.sample

-- fault_forget: forget a kind of failure.
-- takes id
delete from laneway_fault where id = ?

-- faults: kinds of failures, the last seen first.
-- takes limit
-- returns id, count, first, last, sample
select id, count, first, last, sample from laneway_fault order by last desc, id limit ?

-- faults_trim: forget those that were not seen for longest.
-- takes how many to keep
delete from laneway_fault where id in (select id from laneway_fault order by last desc, id limit -1 offset ?)

-- figures_drop: forget old buckets.
-- takes level, up to when
delete from laneway_figures where level = ? and at < ?

-- figures_find: one bucket.
-- takes level, at
-- returns figures
select figures from laneway_figures where level = ? and at = ?

-- figures_read: the buckets of a level from a time on.
-- takes level, since
-- returns at, figures
select at, figures from laneway_figures where level = ? and at >= ? order by at

-- figures_write: keep a bucket.
-- takes level, at, figures
insert into laneway_figures (level, at, figures) values (?, ?, ?)
on conflict (level, at) do update set figures = excluded.figures

-- learned: what is known about tasks.
-- returns task, seen
select task, seen from laneway_learned

-- learned_write: keep what is known about a task.
-- takes task, seen
insert into laneway_learned (task, seen) values (?, ?) on conflict (task) do update set seen = excluded.seen

-- report_add: keep a report until it is added up.
-- takes at, report
insert into laneway_report (at, report) values (?, ?)

-- reporter_write: a worker reports; changes nothing if it has told this before.
-- takes worker, number of the report, now
insert into laneway_reporter (worker, number, at) values (?, ?, ?)
on conflict (worker) do update set number = excluded.number, at = excluded.at where number < excluded.number

-- reporters_drop: forget who has not reported for long.
-- takes up to when
delete from laneway_reporter where at < ?

-- reports: what is not added up.
-- returns at, report
select at, report from laneway_report order by number

-- reports_drop: it is added up.
-- takes up to when
delete from laneway_report where at < ?
