-- workers.sql: workers, their commands, and schedules.

-- beat: record a worker's beat.
insert into laneway_worker as old (id, beat, at, info) values (:id, 1, :now, :info)
on conflict (id) do update set beat = old.beat + 1, at = excluded.at, info = excluded.info

-- command_read: the commands that wait for a worker's next beat; no row if the store does not know the worker.
-- returns command
select command from laneway_worker where id = :id

-- command_write: store a command for a worker's next beat; null removes the stored ones.
update laneway_worker set command = :command where id = :id

-- workers: all workers that have sent a beat or hold claims.
-- returns id, beat, at, info; a worker that holds claims and never sent a beat has beat 0, and null as at and info
select id, beat, at, info from laneway_worker
union all
select distinct worker, 0, null, null from laneway_job
where state = $running and worker not in (select id from laneway_worker)

-- forget: remove a worker.
delete from laneway_worker where id = :id

-- schedules: all schedules that have fired, were paused, or are kept in the store.
-- returns name, last_slot or null, paused_by or null, entry or null
select name, last_slot, paused_by, entry from laneway_schedule

-- schedule_set: keep a schedule, which begins now. It replaces a schedule with its name, and stays paused if that was paused.
insert into laneway_schedule as old (name, last_slot, entry) values (:name, :now, :entry)
on conflict (name) do update set entry = excluded.entry,
    last_slot = case when old.last_slot > excluded.last_slot then old.last_slot else excluded.last_slot end

-- schedule_drop: delete a schedule that is kept in the store, with its last occurrence and its pause.
delete from laneway_schedule where name = :name and entry is not null

-- schedule_pause: skip a schedule's occurrences from now on. A schedule that is paused already does not change.
insert into laneway_schedule as old (name, paused_by) values (:name, :by)
on conflict (name) do update set paused_by = excluded.paused_by where old.paused_by is null

-- schedule_resume: end a schedule's pause. The next occurrence to fire is the first one after now.
update laneway_schedule set paused_by = null, last_slot = case when last_slot > :now then last_slot else :now end
where name = :name and paused_by is not null

-- occurrence_fires: advance a schedule to an occurrence, unless it is there already.
-- returns paused_by or null, no row if the occurrence has fired
insert into laneway_schedule as old (name, last_slot) values (:name, :at)
on conflict (name) do update set last_slot = excluded.last_slot where old.last_slot is null or excluded.last_slot > old.last_slot
returning paused_by  -- not "is null": SQLite 3.40 assumes here that no column can be null

-- kept_fires: advance a schedule that is kept in the store to an occurrence, unless it is there already or its entry has changed.
-- returns paused_by or null, no row if the occurrence does not fire
update laneway_schedule set last_slot = :at
where name = :name and entry = :entry and (last_slot is null or last_slot < :at)
returning paused_by
