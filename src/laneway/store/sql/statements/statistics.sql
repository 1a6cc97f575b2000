-- statistics.sql: figures, failures by kind, and what workers learned about tasks.

-- arrived: the numbers of arrived jobs that are not summed yet.
-- returns at, queue, task, number
select at, queue, task, number from laneway_arrived

-- arrived_add: count arrivals.
insert into laneway_arrived as old (at, queue, task, number) values (:at, :queue, :task, :number)
on conflict (at, queue, task) do update set number = old.number + excluded.number

-- arrived_drop: delete arrivals that are summed.
delete from laneway_arrived where at < :until

-- report_add: keep a report until it is summed.
insert into laneway_report (at, report) values (:at, :report)

-- reports: reports that are not summed yet.
-- returns at, report
select at, report from laneway_report order by number

-- reports_drop: delete reports that are summed.
delete from laneway_report where at < :until

-- reporter_write: store the number of a worker's report; changes nothing if this report was received before.
insert into laneway_reporter as old (worker, number, at) values (:worker, :number, :now)
on conflict (worker) do update set number = excluded.number, at = excluded.at where old.number < excluded.number

-- reporters_drop: forget workers that have not reported for long.
delete from laneway_reporter where at < :until

-- figures_find: one bucket.
-- returns figures
select figures from laneway_figures where level = :level and at = :at

-- figures_read: the buckets of a level that begin at a time or later.
-- returns at, figures
select at, figures from laneway_figures where level = :level and at >= :since order by at

-- figures_write: keep a bucket.
insert into laneway_figures (level, at, figures) values (:level, :at, :figures)
on conflict (level, at) do update set figures = excluded.figures

-- figures_drop: forget old buckets.
delete from laneway_figures where level = :level and at < :until

-- fault_add: count a kind of failure, which was seen `count` times.
insert into laneway_fault as old (id, count, first, last, sample) values (:id, :count, :first, :last, :sample)
on conflict (id) do update set count = old.count + excluded.count, last = excluded.last, sample = excluded.sample

-- fault_forget: forget a kind of failure.
delete from laneway_fault where id = :id

-- faults: kinds of failures, the most recent first.
-- returns id, count, first, last, sample
select id, count, first, last, sample from laneway_fault order by last desc, id limit :most

-- faults_trim: delete the kinds of failures that were last seen longest ago.
delete from laneway_fault where id not in (select id from laneway_fault order by last desc, id limit :keep)

-- learned: what is known about tasks.
-- returns task, seen
select task, seen from laneway_learned

-- learned_write: keep what is known about a task.
insert into laneway_learned (task, seen) values (:task, :seen) on conflict (task) do update set seen = excluded.seen
