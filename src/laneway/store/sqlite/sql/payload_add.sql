-- payload_add.sql: a payload joins its lane. Equal ones are one, with the smaller score and then the earlier arrival.
-- takes lane, side, score, arrival, digest, body
insert into laneway_payload (lane, side, score, arrival, digest, body) values (?, ?, ?, ?, ?, ?)
on conflict (lane, side, digest) do update set score = excluded.score, arrival = excluded.arrival
where (excluded.score, excluded.arrival) < (score, arrival)
