-- payloads_after.sql: the same, after one of them.
-- takes lane, side, its score, its arrival, how many; returns body, score, arrival
select body, score, arrival from laneway_payload
where lane = ? and side = ? and (score, arrival) > (?, ?)
order by score, arrival
limit ?
