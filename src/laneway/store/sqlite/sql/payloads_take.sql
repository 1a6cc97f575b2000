-- payloads_take.sql: the oldest of a side, up to one of them, go to the other side.
-- takes the side to join, lane, the side to leave, the last one's score and arrival
update laneway_payload set side = ? where lane = ? and side = ? and (score, arrival) <= (?, ?)
