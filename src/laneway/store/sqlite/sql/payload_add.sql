-- payload_add.sql: a payload joins its lane, unless an equal one is there.
-- takes lane, side, score, arrival, digest, body
insert into laneway_payload (lane, side, score, arrival, digest, body) values (?, ?, ?, ?, ?, ?)
on conflict (lane, side, digest) do nothing
