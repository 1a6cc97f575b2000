-- workers.sql: workers, what is asked of them, and schedules.

-- beat: a worker lives.
-- takes id, now, info
insert into laneway_worker (id, beat, at, info) values (?, 1, ?, ?)
on conflict (id) do update set beat = beat + 1, at = excluded.at, info = excluded.info

-- command_read: a worker's waiting commands, if it is known.
-- takes id; returns command
select command from laneway_worker where id = ?

-- command_write: leave a command, or take the waiting ones away.
-- takes command or null, id
update laneway_worker set command = ? where id = ?

-- workers: all workers that beat or hold claims.
-- returns id, beat, at, info; a worker that holds claims and never beat has beat 0 and neither time nor info
select id, beat, at, info from laneway_worker
union all
select distinct worker, 0, null, null from laneway_job
where state = 3 and worker not in (select id from laneway_worker)

-- forget: a worker is gone.
-- takes id
delete from laneway_worker where id = ?

-- schedules: all schedules that have fired or were paused.
-- returns name, last_slot or null, paused_by or null
select name, last_slot, paused_by from laneway_schedule

-- schedule_pause: a schedule's slots are skipped from now on. One that is paused stays as it is.
-- takes name, by whom
insert into laneway_schedule (name, paused_by) values (?, ?)
on conflict (name) do update set paused_by = excluded.paused_by where paused_by is null

-- schedule_resume: a schedule goes on, with the slots after now.
-- takes now, name
update laneway_schedule set paused_by = null, last_slot = max(coalesce(last_slot, 0), ?) where name = ? and paused_by is not null

-- slot_advance: a schedule's slot fires, if it has not.
-- takes schedule, slot; returns paused_by or null, no row if the slot has fired
insert into laneway_schedule (name, last_slot) values (?, ?)
on conflict (name) do update set last_slot = excluded.last_slot where last_slot is null or excluded.last_slot > last_slot
returning paused_by  -- not "is null": SQLite 3.40 takes every column for not null here
