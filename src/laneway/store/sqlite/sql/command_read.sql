-- command_read.sql: a worker's waiting commands, if it is known.
-- takes id; returns command
select command from laneway_worker where id = ?
