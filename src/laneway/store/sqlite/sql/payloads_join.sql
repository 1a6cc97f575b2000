-- payloads_join.sql: what is on one side of a lane joins the other, but for those that have an equal one there.
-- takes the side to join, lane, the side to leave
insert into laneway_payload (lane, side, score, arrival, digest, body)
select lane, ?, score, arrival, digest, body from laneway_payload where lane = ? and side = ?
on conflict (lane, side, digest) do nothing
