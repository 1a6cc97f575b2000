-- command_write.sql: leave a command, or take the waiting ones away.
-- takes command or null, id
update laneway_worker set command = ? where id = ?
