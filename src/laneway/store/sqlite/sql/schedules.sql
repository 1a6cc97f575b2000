-- schedules.sql: all schedules that have fired or were paused.
-- returns name, last_slot or null, paused_by or null
select name, last_slot, paused_by from laneway_schedule
