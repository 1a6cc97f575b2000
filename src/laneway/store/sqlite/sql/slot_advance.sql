-- slot_advance.sql: a schedule's slot fires, if it has not.
-- takes schedule, slot; returns paused_by or null, no row if the slot has fired
insert into laneway_schedule (name, last_slot) values (?, ?)
on conflict (name) do update set last_slot = excluded.last_slot where last_slot is null or excluded.last_slot > last_slot
returning paused_by  -- not "is null": SQLite 3.40 takes every column for not null here
