-- payloads_equal.sql: what is on one side of a lane and has an equal one on the other, as rows of the other side.
-- takes the other side, lane, the side; returns lane, side, score, arrival, digest, body
select it.lane, other.side, it.score, it.arrival, it.digest, it.body
from laneway_payload it cross join laneway_payload other on other.lane = it.lane and other.side = ? and other.digest = it.digest
where it.lane = ? and it.side = ?
