-- drop_oldest.lua: remove the oldest payload of a collector's lane, of those that are not running.
-- uses   clock queue open standing step
-- makes  jobs: record jobs lanes
-- opens  jobs
-- KEYS  1 the queue's base
-- ARGV  1 the time or ''   2 the lane's id
-- returns its body with its headers, and its score; or nothing

local lane = books[B_KIND] == 'lanes' and open_lane(ARGV[2], call('HGET', JOB, ARGV[2]))
if not lane then
    return {}
end
local index, bodies = WAITS .. lane.lane, BODIES .. lane.lane
local oldest = payloads(index, bodies, 1)[1]
if not oldest then
    return {}
end
drop_payload(index, bodies, oldest)
if call('EXISTS', index) == 0 then
    if waits(lane) then
        call('ZREM', due_key(lane.rank), entry(lane))
        call('ZREM', RETRY, lane.id)
        remove_lane(lane)
    else
        lane.next_due, lane.next_since = 0, 0
        write_lane(lane)
    end
end
q.changed = true
finish((standing()))
return {oldest[4], string.format('%.17g', oldest[2])}
