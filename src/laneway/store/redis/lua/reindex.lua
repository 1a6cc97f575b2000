-- reindex.lua: put jobs that are in no index back into one, or let lanes go on whose holder is not in the store any more.
-- uses   clock queue standing step
-- makes  jobs: record jobs find
-- opens  jobs
-- KEYS  1 the queue's base
-- ARGV  1 the time or ''   2 jobs or lanes   then ids, or lanes
-- returns how many jobs or lanes were repaired

local band = bit.band
local found = 0

local function put_back(id)
    local job = open(id, call('HGET', JOB, id))
    if not job or where(job) ~= 'nowhere' then
        return
    end
    found, q.changed = found + 1, true
    if band(job.flags, F_NO_END) ~= 0 then
        -- It was dead: put it back into an index of dead jobs.
        call('ZADD', band(job.flags, F_HALTS) ~= 0 and books[B_KIND] ~= 'lanes' and HALTED or DEAD, job.due, id)
    else
        wait(job)
    end
end

local function go_on(lane)
    local holder = call('HGET', LANES, lane)
    if not holder or call('HEXISTS', JOB, holder) == 0 then
        found = found + 1
        let_out(lane)
    end
end

for n = 3, #ARGV do
    if ARGV[2] == 'jobs' then
        put_back(ARGV[n])
    else
        go_on(ARGV[n])
    end
end
finish((standing()))
return found
