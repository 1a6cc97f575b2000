-- parked_before.sql: how many wait in a parked job's lane before it.
-- takes id; returns how many
select count(*)
from laneway_job me join laneway_job o on o.state = 2 and o.queue = me.queue and o.lane = me.lane and (o.place, o.seq) < (me.place, me.seq)
where me.id = ? and me.state = 2
