-- _meet.lua: a claim's walk finds a job with rules besides a lane: an expiry, a unique key, earlier attempts. Stands behind
-- _jobs.lua.

local function too_old(job)
    return job.expires and band(job.flags, F_RAN + F_NO_END) == 0 and job.place + job.expires < q.now
end

local function expire(job)
    remove(job, 'cancelled')
    q.passed = q.passed + 1
end

-- Remove a lane's holder, which has expired, and the next jobs of its lane as long as they have expired too.
local function expire_holder(job)
    local lane = job.lane
    repeat
        expire(job)
        local id = call('HGET', LANES, lane)
        job = id and open(id, call('HGET', JOB, id))
        local goes_on = job and too_old(job) and q.passed < MOST_PASSED
        if goes_on then
            call('ZREM', due_key(job.rank), entry(job))
        end
    until not goes_on
end

-- Return whether the job is to be claimed; see meet in _walk.lua. If the job holds its lane and has expired, the lane gets
-- another holder: that is done when the portion is written, because the portion has read the holders before.
local function meet_other(portion, id, record)
    local job = open(id, record)
    if not job then
        q.passed = q.passed + (record and 0 or 1)
        return record ~= false  -- a record that cannot be read is claimed: its worker settles it as dead
    end
    local lane, holder = job.lane, nil
    if lane then
        holder = portion.holders[lane]
        if holder == nil then
            holder = call('HGET', LANES, lane)
        end
    end
    if holder and holder ~= id then
        need('walk').park(portion, lane, job.place, line_entry(job.seq, id))
        return false
    elseif too_old(job) then
        if holder then
            portion.expired = job
        else
            expire(job)
        end
        return false
    end
    if lane and not holder then
        need('walk').take_lane(portion, lane, id)
    end
    if job.key and call('HEXISTS', END_KEYS, id) == 0 then
        forget_key(job)
    end
    if band(job.flags, F_LOST) ~= 0 then
        q.words = q.words or {}
        q.words[#q.words + 1] = id
        q.words[#q.words + 1] = call('HGET', LOST, id) or ''
    end
    if job.attempt > 0 then
        portion.retried[#portion.retried + 1] = id
    end
    return true
end

-- Return the keys of the indexes of waiting jobs, the highest priority first.
local function due_keys()
    local all, keys = {100, q.ranks:byte(1, -1)}, {}
    table.sort(all, function(a, b) return a > b end)
    for n, rank in ipairs(all) do
        keys[n] = due_key(rank)
    end
    return keys
end

-- Remove priorities from the books that no waiting job has.
local function clear_ranks()
    local used = q.ranks:gsub('.', function(rank) return call('EXISTS', due_key(rank:byte())) == 1 and rank or '' end)
    if used ~= q.ranks then
        q.ranks = used
        call('HSET', META, 'ranks', q.ranks)
    end
end
