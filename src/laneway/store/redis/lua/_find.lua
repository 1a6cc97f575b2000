-- _find.lua: in which index a job is. Stands behind _jobs.lua.

-- Return 'waiting', 'parked', 'running' (then also the worker and the token), 'dead' or 'nowhere'.
local function where(job)
    if call('ZSCORE', due_key(job.rank), entry(job)) then
        return 'waiting'
    end
    if job.lane and call('ZSCORE', PARKED .. job.lane, line_entry(job.seq, job.id)) then
        return 'parked'
    end
    if call('ZSCORE', DEAD, job.id) or call('ZSCORE', HALTED, job.id) then
        return 'dead'
    end
    for _, worker in ipairs(call('SMEMBERS', HOLDERS)) do
        local token = call('HGET', RUNNING .. worker, job.id)
        if token then
            return 'running', worker, token
        end
    end
    return 'nowhere'
end

-- Return the state as users see it.
local function state_of(job, place)
    if place == 'waiting' then
        if job.due <= q.now then
            return 'ready'
        end
        return call('ZSCORE', RETRY, job.id) and 'retrying' or 'scheduled'
    end
    return place == 'parked' and 'blocked' or place
end
