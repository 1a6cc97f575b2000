-- lane_gather.sql: when what gathers while its lane runs is due, and since when it does; null: nothing gathers.
-- takes next_due, next_since, seq
update laneway_job set next_due = ?, next_since = ? where seq = ?
