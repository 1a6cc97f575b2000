-- payload_merge.sql: a payload joins its lane. Equal ones are one, with the larger score and the earlier arrival.
-- takes lane, side, score, arrival, digest, body
insert into laneway_payload (lane, side, score, arrival, digest, body) values (?, ?, ?, ?, ?, ?)
on conflict (lane, side, digest) do update set score = max(score, excluded.score), arrival = min(arrival, excluded.arrival)
where excluded.score > score or excluded.arrival < arrival
