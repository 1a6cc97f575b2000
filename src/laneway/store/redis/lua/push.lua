-- push.lua: take jobs of one queue, in order. It never looks at their lanes.
-- uses  clock arrived
-- KEYS  1 the queue's base
-- ARGV  1 the time or ''   2 the queue's number, or '' if it should have one   3 how many sequence numbers the whole push takes
--       4 which of them these jobs have, a msgpack list, or '' if one after the other   5 schedule or ''   6 its slot
--       then three per job: id, when ('' at once, else delay@at), flags and rank and what comes after a record's numbers
-- returns 0 if all are new, else a list: 1 for a new job, else the id of the one that is there in its stead;
--         -1 if the queue has no number, -2 if the slot has fired, -3 if it is a collector's queue

local meta = call('HMGET', META, 'now', 'seq', 'number', 'enqueued', 'kind', 'ranks')
if meta[5] == 'lanes' then
    if call('HLEN', JOB) > 0 then
        return -3
    end
    call('HDEL', META, 'kind')
end
if not meta[3] and ARGV[2] == '' then
    return -1
end

-- Most pushes bring one job with nothing special about it: half as many steps will do.
if #ARGV == 9 and ARGV[8] == '' and ARGV[5] == '' and meta[3] and ARGV[9]:sub(1, 2) == '\0d' then
    local now = clock(ARGV[1], meta[1])
    local seq = (tonumber(meta[2]) or 0) + 1
    if seq < now then
        seq = now
    end
    if call('HSETNX', JOB, ARGV[7], struct.pack('>BBI8I8', 128, 100, seq, now) .. ARGV[9]:sub(3)) == 0 then
        return {ARGV[7]}
    end
    local entry = struct.pack('>BI7', 255, seq) .. ARGV[7]
    call('ZADD', DUE .. 0, now, entry)
    if call('ZRANGE', DUE .. 0, 0, 0)[1] == entry then
        ring()
    end
    call('HSET', META, 'now', now, 'seq', seq, 'enqueued', (tonumber(meta[4]) or 0) + 1)
    arrive(now, struct.unpack('>I2c0', ARGV[9], 3), 1)
    return 0
end

local ranks = meta[6] or ''
if ARGV[5] ~= '' then
    local last = call('HGET', SLOTS, ARGV[5])
    if last and tonumber(last) >= tonumber(ARGV[6]) then
        return -2
    end
    call('HSET', SLOTS, ARGV[5], ARGV[6])
end

local now = clock(ARGV[1], meta[1])
local first = (tonumber(meta[2]) or 0) + 1
if first < now then
    first = now
end
local order = ARGV[4] ~= '' and cmsgpack.unpack(ARGV[4])
local number = (#ARGV - 6) / 3
local there = {}
for from = 1, number, 1000 do
    local ids = {}
    for n = from, math.min(from + 999, number) do
        ids[#ids + 1] = ARGV[4 + 3 * n]
    end
    local found = call('HMGET', JOB, unpack(ids))
    for n = 1, #ids do
        there[ids[n]] = found[n] and true
    end
end

local function unique_key(rest)
    local flags, at = rest:byte(1), 3
    if bit.band(flags, 2) ~= 0 then
        at = at + 8
    end
    if bit.band(flags, 1) ~= 0 then
        at = at + 2 + struct.unpack('>I2', rest, at)
    end
    return (struct.unpack('>I2c0', rest, at))
end

local jobs, due_by_rank, heads, answers, tasks, taken = {}, {}, {}, {}, {}, 0
local pack = struct.pack
for n = 1, number do
    local id, when, rest = ARGV[4 + 3 * n], ARGV[5 + 3 * n], ARGV[6 + 3 * n]
    local met = there[id] and id
    local key = not met and bit.band(rest:byte(1), 4) ~= 0 and unique_key(rest)
    if key then
        met = call('HGET', UNIQUE, key)
    end
    answers[n] = met or 1
    if not met then
        local place = now
        if when ~= '' then
            local delay, at = when:match('^(%d+)@(%d+)$')
            place = math.max(now + tonumber(delay), tonumber(at))
        end
        local seq = first + (order and order[n] or n - 1)
        local stands = pack('>BI7', 255, seq)
        jobs[#jobs + 1] = id
        if place == now then
            jobs[#jobs + 1] = pack('>BBI8I8', rest:byte(1) + 128, rest:byte(2), seq, now) .. rest:sub(3)
        else
            jobs[#jobs + 1] = rest:sub(1, 2) .. pack('>I8I8I8I8I2', seq, now, place, place, 0) .. rest:sub(3)
        end
        local rank = rest:byte(2)
        local due = due_by_rank[rank]
        if not due then
            due = {}
            due_by_rank[rank] = due
        end
        due[#due + 1] = place
        due[#due + 1] = stands .. id
        local head = heads[rank]
        if not head or place < head[1] then
            heads[rank] = {place, stands .. id}
        end
        if key then
            call('HSET', UNIQUE, key, id)
        end
        there[id] = true
        taken = taken + 1
        local task = task_of(rest:byte(1), rest, 3)
        tasks[task] = (tasks[task] or 0) + 1
    end
end

local rung = false
if taken > 0 then
    in_portions('HSET', JOB, jobs)
    for rank, due in pairs(due_by_rank) do
        in_portions('ZADD', DUE .. (rank - 100), due)
        -- Who waits knows when the first is due: it must hear of one that comes before.
        rung = rung or call('ZRANGE', DUE .. (rank - 100), 0, 0)[1] == heads[rank][2]
        if rank ~= 100 and not ranks:find(string.char(rank), 1, true) then
            ranks = ranks .. string.char(rank)
            call('HSET', META, 'ranks', ranks)
        end
    end
    call('HINCRBY', META, 'enqueued', taken)
    for task, times in pairs(tasks) do
        arrive(now, task, times)
    end
end
call('HSET', META, 'now', now, 'seq', first + ARGV[3] - 1)
if not meta[3] then
    call('HSET', META, 'number', ARGV[2])
end
if rung then
    ring()
end
return taken == number and 0 or answers
