-- payloads_read.sql: a lane's payloads on one side, the oldest first.
-- takes lane, side, how many or -1; returns body, score, arrival
select body, score, arrival from laneway_payload where lane = ? and side = ? order by score, arrival limit ?
