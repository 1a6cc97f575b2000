-- payloads_drop_all.sql: what is in a lane is gone.
-- takes lane
delete from laneway_payload where lane = ?
