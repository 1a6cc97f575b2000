-- schedule_pause.sql: a schedule's slots are skipped from now on. One that is paused stays as it is.
-- takes name, by whom
insert into laneway_schedule (name, paused_by) values (?, ?)
on conflict (name) do update set paused_by = excluded.paused_by where paused_by is null
