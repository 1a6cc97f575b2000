-- slot_advance.sql: a schedule's slot fires, if it has not.
-- takes schedule, slot
insert into laneway_schedule (name, last_slot) values (?, ?)
on conflict (name) do update set last_slot = excluded.last_slot where excluded.last_slot > last_slot
