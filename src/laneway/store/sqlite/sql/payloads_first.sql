-- payloads_first.sql: of a lane's payloads on one side the one that arrived first.
-- takes lane, side; returns body, score, arrival
select body, score, arrival from laneway_payload where lane = ? and side = ? order by arrival limit 1
