-- _jobs.lua: a queue's jobs, their ways out and ways back. Stands behind _clock.lua and _recent.lua.
--
-- A job is in one place at a time: it waits (DUE), is parked behind its lane's holder (PARKED), runs (RUNNING) or is dead (DEAD,
-- or HALTED if it keeps its lane). Its record stays where it is; only what must be known later is written into it.

local F_LANE, F_EXPIRES, F_UNIQUE, F_RAN, F_LOST, F_NO_END, F_HALTS = 1, 2, 4, 8, 16, 32, 64
local F_FRESH = 128
local HEAD = '>BBI8I8I8I8I2'
local band, bor, bnot = bit.band, bit.bor, bit.bnot

local books = call('HMGET', META, 'now', 'seq', 'number', 'ranks', 'paused', 'token', 'kind', 'processed', 'runs')
local now = clock(ARGV[1], books[1])
local last_seq = tonumber(books[2]) or 0
local ranks = books[4] or ''
local paused = books[5] and true or false
local queue = KEYS[1]:match('{(.*):%d+}')
local counts = {}   -- what this call adds to the books
local runs = {}     -- finished runs, JSON
local later = {}    -- who waits since this call and is due later: rank → {due, entry}
local changed = false

local function count(name, by)
    counts[name] = (counts[name] or 0) + (by or 1)
    changed = true
end

local function digits(number)
    return string.format('%.0f', number)
end

-- The next sequence number.
local function next_seq()
    last_seq = math.max(last_seq + 1, now)
    changed = true
    return last_seq
end

-- The priorities in use, the highest first, as ranks.
local function each_rank()
    local list = {100}
    if ranks == '' then
        return list
    end
    for n = 1, #ranks do
        list[n + 1] = ranks:byte(n)
    end
    table.sort(list, function(a, b) return a > b end)
    return list
end

local function read_texts(job)
    local at = job.texts_at
    if band(job.flags, F_EXPIRES) ~= 0 then
        job.expires, at = struct.unpack('>I8', job.record, at)
    end
    if band(job.flags, F_LANE) ~= 0 then
        job.lane, at = struct.unpack('>I2c0', job.record, at)
    end
    if band(job.flags, F_UNIQUE) ~= 0 then
        job.key, at = struct.unpack('>I2c0', job.record, at)
    end
    job.task, job.body_at = struct.unpack('>I2c0', job.record, at)
end

-- A job by its record; nil if that is none.
local function open(id, record)
    if not record or #record < 20 then
        return nil
    end
    local job = {id = id, record = record}
    if record:byte(1) >= F_FRESH then
        job.flags, job.rank, job.seq, job.enqueued, job.texts_at = struct.unpack('>BBI8I8', record)
        job.flags, job.place, job.due, job.attempt = job.flags - F_FRESH, job.enqueued, job.enqueued, 0
    elseif #record < 38 then
        return nil
    else
        job.flags, job.rank, job.seq, job.enqueued, job.place, job.due, job.attempt, job.texts_at = struct.unpack(HEAD, record)
    end
    if job.rank > 200 or not pcall(read_texts, job) then
        return nil
    end
    return job
end

local function write(job)
    local head = struct.pack(HEAD, job.flags, job.rank, job.seq, job.enqueued, job.place, job.due, job.attempt)
    job.record = head .. job.record:sub(job.texts_at)
    job.body_at = job.body_at + 37 - job.texts_at
    job.texts_at = 37
    call('HSET', JOB, job.id, job.record)
end

-- How a job stands among the parked, which are sorted by their place's time.
local function line_entry(job)
    return struct.pack('>BI7', 255, job.seq) .. job.id
end

-- How it stands among those that wait, which are sorted by their due time: ties go by place.
local function entry(job)
    if job.place == job.due then
        return line_entry(job)
    end
    return struct.pack('>BI7I7', 0, job.place, job.seq) .. job.id
end

local function id_of(entry_)
    return entry_:sub(entry_:byte(1) == 255 and 9 or 16)
end

local function due_key(rank)
    return DUE .. (rank - 100)
end

-- Into the index of those that wait.
local function wait(job)
    local stands = entry(job)
    call('ZADD', due_key(job.rank), job.due, stands)
    if job.rank ~= 100 and not ranks:find(string.char(job.rank), 1, true) then
        ranks = ranks .. string.char(job.rank)
        call('HSET', META, 'ranks', ranks)
    end
    if job.due > now and not (later[job.rank] and later[job.rank][1] <= job.due) then
        later[job.rank] = {job.due, stands}
    end
    changed = true
end

-- A record that cannot be read waits to be claimed: who claims it lets it die, and tells of it.
local function wait_unread(id)
    call('ZADD', due_key(100), now, struct.pack('>BI7', 255, next_seq()) .. id)
end

local function holds(job)
    return job.lane ~= nil and call('HGET', LANES, job.lane) == job.id
end

-- A lane's holder has left: the next by place holds it at once, and is due.
local function let_out(lane)
    while true do
        local found = call('ZPOPMIN', PARKED .. lane)[1]
        if not found then
            call('HDEL', LANES, lane)
            return
        end
        count('blocked', -1)
        local id = id_of(found)
        local record = call('HGET', JOB, id)
        local job = open(id, record)
        if job then
            call('HSET', LANES, lane, id)
            wait(job)
            return
        elseif record then
            wait_unread(id)
        end
    end
end

local function forget_key(job)
    if job.key and call('HGET', UNIQUE, job.key) == job.id then
        call('HDEL', UNIQUE, job.key)
    end
end

local function forget_sides(...)
    if call('EXISTS', ERRORS, NOTES, LOST, MARKS) > 0 then
        call('HDEL', ERRORS, ...)
        call('HDEL', NOTES, ...)
        call('HDEL', LOST, ...)
        call('HDEL', MARKS, ...)
    end
end

-- A job's errors, the oldest first: JSON texts, each with its length in front.
local function read_errors(stored)
    local list, at = {}, 1
    while at <= #stored do
        local fine, found, after = pcall(struct.unpack, '>I4c0', stored, at)
        if not fine then
            list[#list + 1] = '{"kind":"garbage","message":"the stored errors could not be read"}'
            return list
        end
        list[#list + 1], at = found, after
    end
    return list
end

local function add_error(job, text)
    local list = read_errors(call('HGET', ERRORS, job.id) or '')
    list[#list + 1] = '{"at":' .. digits(now) .. ',' .. text:sub(2)
    local kept = {}
    for n = math.max(#list - 9, 1), #list do
        kept[#kept + 1] = struct.pack('>I4c0', #list[n], list[n])
    end
    call('HSET', ERRORS, job.id, table.concat(kept))
end

-- The beginning of a run's JSON for a job that never ran, or whose run nobody can tell of.
local function run_of(job)
    local lane = job.lane and cjson.encode(job.lane) or 'null'
    return '[' .. table.concat({
        cjson.encode(job.id), cjson.encode(job.task), cjson.encode(queue), lane, digits(job.enqueued), '0', digits(now), '',
    }, ',')
end

local function remember(run, outcome)
    runs[#runs + 1] = run .. '"' .. outcome .. '"]'
end

-- The one door: a job that is in no index any more leaves the store, and its lane goes on.
local function leave(job, outcome, run)
    local held = holds(job)
    call('HDEL', JOB, job.id)
    forget_key(job)
    forget_sides(job.id)
    if outcome == 'cancelled' then
        count('cancelled')
    end
    if outcome then
        remember(run or run_of(job), outcome)
    end
    if held then
        let_out(job.lane)
    end
    changed = true
end

-- A job that is in no index any more gives up: it is kept, and its lane goes on, unless it is halted.
local function die(job, error, counted, halts)
    local held = holds(job)
    halts = halts and held
    forget_key(job)
    add_error(job, error)
    call('HDEL', LOST, job.id)
    call('HDEL', MARKS, job.id)
    job.attempt = job.attempt + (counted and 1 or 0)
    job.due = now
    job.flags = bor(band(job.flags, bnot(F_LOST + F_HALTS)), F_NO_END + (halts and F_HALTS or 0))
    if halts then
        job.flags = bor(job.flags, F_RAN)
    end
    write(job)
    call('ZADD', halts and HALTED or DEAD, now, job.id)
    count('dead')
    if held and not halts then
        let_out(job.lane)
    end
end

local function kill(job)
    die(job, '{"kind":"killed","message":"killed by hand"}', false, false)
end

-- A record that cannot be read, of whom a run ended: it dies, and what is there is kept as its body. Other ends than death are not its own.
local function settle_unread(record, item)
    local id, outcome, error, run = item[1], item[3], item[5], item[6]
    if outcome ~= 'dead' then
        wait_unread(id)
        return
    end
    local job = {id = id, flags = F_NO_END, rank = 100, attempt = 0, seq = next_seq(), enqueued = now, place = now, due = now}
    job.task, job.record, job.texts_at, job.body_at = '', '\0\0' .. record, 1, 3
    die(job, error, true, false)
    count('failed')
    remember(run, outcome)
    -- Its lane is not known any more: it may have been the holder of one.
    local lanes = call('HGETALL', LANES)
    for n = 1, #lanes, 2 do
        if lanes[n + 1] == id then
            let_out(lanes[n])
        end
    end
end

-- A run did not end, and the job is not to come back.
local function end_as_asked(job, mark, run)
    if mark == 'kill' then
        kill(job)
        if run then
            remember(run, 'dead')
        end
    else
        leave(job, mark == 'cancel' and 'cancelled' or nil, run)
    end
end

-- What is asked of a job's run; MARKS has the mark, a space and the worker.
local function mark_of(id)
    local found = call('HGET', MARKS, id)
    return found and found:match('^(%S+)') or nil
end

-- How many jobs are due.
local function ready()
    local number = 0
    for _, rank in ipairs(each_rank()) do
        number = number + call('ZCOUNT', due_key(rank), '-inf', now)
    end
    return number
end

-- Microseconds until the next job is due; -1 if none waits.
local function next_due()
    local first
    for _, rank in ipairs(each_rank()) do
        local head = call('ZRANGE', due_key(rank), 0, 0, 'WITHSCORES')
        if head[2] and (not first or tonumber(head[2]) < first) then
            first = tonumber(head[2])
        end
    end
    return first and math.max(first - now, 0) or -1
end

-- Write the books, and ring if somebody who waits must look again.
local function finish(due_now, token)
    if not changed then
        return
    end
    local written = {'now', now, 'seq', last_seq}
    local function put(name, value)
        written[#written + 1] = name
        written[#written + 1] = value
    end
    for name, by in pairs(counts) do
        if name == 'processed' then
            put(name, (tonumber(books[8]) or 0) + by)
        elseif by ~= 0 then
            call('HINCRBY', META, name, by)
        end
    end
    if #runs > 0 then
        put('runs', keep_runs(now, books[9], #runs, table.concat(runs, ',')))
    end
    if token then
        put('token', token)
    end
    call('HSET', META, unpack(written))
    local rings = due_now > 0 and not paused
    for rank, head in pairs(later) do
        rings = rings or call('ZRANGE', due_key(rank), 0, 0)[1] == head[2]
    end
    if rings then
        ring()
    end
end
