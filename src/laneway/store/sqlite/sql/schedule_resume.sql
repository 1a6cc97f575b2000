-- schedule_resume.sql: a schedule goes on, with the slots after now.
-- takes now, name
update laneway_schedule set paused_by = null, last_slot = max(coalesce(last_slot, 0), ?) where name = ? and paused_by is not null
