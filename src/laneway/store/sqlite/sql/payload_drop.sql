-- payload_drop.sql: one payload is gone.
-- takes lane, side, score, arrival
delete from laneway_payload where lane = ? and side = ? and score = ? and arrival = ?
