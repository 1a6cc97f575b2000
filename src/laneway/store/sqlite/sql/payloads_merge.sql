-- payloads_merge.sql: what is on one side of a lane joins the other, as one by one.
-- takes the side to join, lane, the side to leave
insert into laneway_payload (lane, side, score, arrival, digest, body)
select lane, ?, score, arrival, digest, body from laneway_payload where lane = ? and side = ?
on conflict (lane, side, digest) do update set score = excluded.score, arrival = excluded.arrival
where (excluded.score, excluded.arrival) < (score, arrival)
