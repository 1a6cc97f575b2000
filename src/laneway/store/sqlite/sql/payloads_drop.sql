-- payloads_drop.sql: what is on one side of a lane is gone.
-- takes lane, side
delete from laneway_payload where lane = ? and side = ?
