-- _walk.lua: claim from a portion of due jobs, not all of which are plain. Stands behind _claims.lua.

-- Look ahead in the portion, from its job number `from` on: find the jobs with no rule but a lane, and read the holders of these
-- lanes with one command.
local function look_ahead(records, from)
    local names, lanes, holders = {}, {}, {}
    for n = from, #records do
        local lane = records[n] and lane_alone(records[n])
        lanes[n] = lane
        if lane and holders[lane] == nil then
            holders[lane] = false
            names[#names + 1] = lane
        end
    end
    if names[1] then
        local found = call('HMGET', LANES, unpack(names))
        for n = 1, #names do
            holders[names[n]] = found[n]
        end
    end
    q.passed = q.passed or 0  -- how many due jobs were passed over: parked, or expired
    return {lanes = lanes, holders = holders, taken = {}, parked = {}, retried = {}}
end

local function take_lane(portion, lane, id)
    local taken = portion.taken
    taken[#taken + 1] = lane
    taken[#taken + 1] = id
    portion.holders[lane] = id
end

local function park(portion, lane, place, entry)
    local line = portion.parked[lane]
    if not line then
        line = {}
        portion.parked[lane] = line
    end
    line[#line + 1] = place
    line[#line + 1] = entry
    q.passed, q.blocked = q.passed + 1, q.blocked + 1
end

-- Return whether job number `n` of the portion is to be claimed. If not, it was parked behind its lane's holder, or has expired.
local function meet(portion, n, id, record)
    local lane = portion.lanes[n]
    if not lane then
        return need('jobs').meet_other(portion, id, record)
    end
    local holder = portion.holders[lane]
    if holder and holder ~= id then
        local place = string.format('%d', (struct.unpack('>I8', record, R_ENQUEUED)))  -- where a fresh record has it
        park(portion, lane, place, '\255' .. record:sub(R_SEQ, R_ENQUEUED - 1) .. id)
        return false
    elseif not holder then
        take_lane(portion, lane, id)
    end
    return true
end

-- Write the changes of a portion, whose jobs were taken out of the index.
local function write_portion(portion)
    if portion.taken[1] then
        call('HSET', LANES, unpack(portion.taken))
    end
    for lane, line in pairs(portion.parked) do
        call('ZADD', PARKED .. lane, unpack(line))
    end
    if portion.retried[1] then
        call('ZREM', RETRY, unpack(portion.retried))
    end
    if portion.expired then
        need('jobs').expire_holder(portion.expired)
    end
end
