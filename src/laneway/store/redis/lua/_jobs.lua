-- _jobs.lua: a queue's jobs: how they are read and written, wait, leave and die. Stands behind _step.lua and _record.lua.
--
-- A job is in exactly one index: it waits (DUE), is parked behind its lane's holder (PARKED), runs (RUNNING) or is dead (DEAD, or
-- HALTED if it keeps its lane). When it moves to another index, its record in JOB stays, and is written again only if it changed.

local function count(name, by)
    q.counts = q.counts or {}
    q.counts[name] = (q.counts[name] or 0) + (by or 1)
    q.changed = true
end

-- Return the next sequence number.
local function next_seq()
    q.seq = math.max((q.seq or tonumber(call('HGET', META, 'seq')) or 0) + 1, q.now)
    q.changed = true
    return q.seq
end

-- -- records -----------------------------------------------------------------------------------------------------

-- Return a job read from its record; nil if the record is not a job's.
local function open(id, record)
    if not record or #record <= R_FRESH_TEXTS then
        return nil
    end
    local job = {id = id, record = record, attempt = 0}
    if record:byte(1) >= F_FRESH then
        job.flags, job.rank, job.rules, job.seq, job.enqueued, job.texts_at = struct.unpack(FRESH_HEAD, record)
        job.flags, job.place, job.due = job.flags - F_FRESH, job.enqueued, job.enqueued
    elseif #record <= R_TEXTS then
        return nil
    else
        job.flags, job.rank, job.rules, job.seq, job.enqueued, job.place, job.due, job.attempt, job.texts_at =
            struct.unpack(HEAD, record)
    end
    local fine
    fine, job.task, job.lane, job.key, job.expires, job.body_at = pcall(read_texts, job.flags, record, job.texts_at)
    return fine and job.rank <= 200 and job or nil
end

local function write(job)
    local head = struct.pack(HEAD, job.flags, job.rank, job.rules, job.seq, job.enqueued, job.place, job.due, job.attempt)
    job.record = head .. job.record:sub(job.texts_at)
    job.body_at = job.body_at + R_TEXTS - job.texts_at
    job.texts_at = R_TEXTS
    call('HSET', JOB, job.id, job.record)
end

-- Return a job's entry in the index of waiting jobs. They are sorted by due time; entries sort jobs that are due together by
-- place.
local function entry(job)
    if job.place == job.due then
        return line_entry(job.seq, job.id)
    end
    return struct.pack('>BI7I7', 0, job.place, job.seq) .. job.id
end

local function id_of(entry_)
    return entry_:sub(entry_:byte(1) == 255 and E_ID or E_POSTPONED_ID)
end

local function due_key(rank)
    return DUE .. (rank - 100)
end

-- -- waiting -----------------------------------------------------------------------------------------------------

-- Put a job into the index of waiting jobs.
local function wait(job)
    local stands = entry(job)
    call('ZADD', due_key(job.rank), job.due, stands)
    if job.rank ~= 100 and not q.ranks:find(string.char(job.rank), 1, true) then
        q.ranks = q.ranks .. string.char(job.rank)
        call('HSET', META, 'ranks', q.ranks)
    end
    if job.due > q.now then
        q.later = q.later or {}
        local known = q.later[job.rank]
        q.later[job.rank] = known and known[1] <= job.due and known or {job.due, stands}
    end
    q.changed = true
end

-- Put a job whose record cannot be read into the index of waiting jobs: the worker that claims it reports it, and settles it as
-- dead.
local function wait_unread(id)
    call('ZADD', due_key(100), q.now, line_entry(next_seq(), id))
end

-- Put the next job of a lane into the index of waiting jobs; return whether it can hold the lane. See leave.
local function come_forward(id, record)
    local job = open(id, record)
    if job then
        wait(job)
    elseif record then
        wait_unread(id)
    end
    return job ~= nil
end

local function holds(job)
    return job.lane ~= nil and call('HGET', LANES, job.lane) == job.id
end

local function let_out(lane)
    leave(nil, 1, 1, {':' .. lane}, 1)
end

local function forget_key(job)
    if job.key and call('HGET', UNIQUE, job.key) == job.id then
        call('HDEL', UNIQUE, job.key)
    end
end

-- -- errors and runs ---------------------------------------------------------------------------------------------

-- Return a job's errors, the oldest first, as JSON texts. They are stored one after the other, each with its length in front.
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
    list[#list + 1] = '{"at":' .. q.now_text .. ',' .. text:sub(2)
    local kept = {}
    for n = math.max(#list - 9, 1), #list do
        kept[#kept + 1] = struct.pack('>I4c0', #list[n], list[n])
    end
    call('HSET', ERRORS, job.id, table.concat(kept))
end

-- Return the JSON of a run up to its outcome, for a job that never ran, or whose run the caller does not know.
local function run_of(job)
    local queue, lane = cjson.encode(KEYS[1]:match('{(.*):%d+}')), cjson.encode(job.lane)  -- of nil: null
    return '[' .. table.concat({
        cjson.encode(job.id), cjson.encode(job.task), queue, lane, string.format('%d', job.enqueued), '0', q.now_text, '',
    }, ',')
end

local function keep_run(text)
    q.runs = q.runs or {}
    q.runs[#q.runs + 1] = text
end

-- Delete the oldest of `kept` runs; return how many are left.
local function forget_runs(kept)
    local gone
    repeat
        gone = 0
        for _, oldest in ipairs(call('LRANGE', RECENT, 0, 99)) do
            local size = #oldest >= 12 and struct.unpack('>I4', oldest, 9) or 0
            if kept - size < KEEP_RUNS then
                break
            end
            kept, gone = kept - size, gone + 1
        end
        if gone > 0 then
            call('LTRIM', RECENT, gone, -1)
        end
    until gone < 100
    return kept
end

local function remember(run, outcome)
    keep_run(run .. '"' .. outcome .. '"]')
end

-- -- leaving and dying -------------------------------------------------------------------------------------------

-- Remove a job from the store; the caller has taken it out of its index. `outcome`: 'cancelled', or nil if a user deleted it.
local function remove(job, outcome, run)
    if outcome == 'cancelled' then
        count('cancelled')
    end
    if outcome then
        remember(run or run_of(job), outcome)
    end
    local held = holds(job)
    forget_key(job)
    leave({job.id}, 1, 1, held and {':' .. job.lane}, 1)
end

-- Let a job die; the caller has taken it out of its index. The job is kept, and its lane goes on, unless the death halts the
-- lane.
local function die(job, error, counted, halts)
    local held = holds(job)
    halts = halts and held
    forget_key(job)
    add_error(job, error)
    call('HDEL', LOST, job.id)
    call('HDEL', MARKS, job.id)
    job.attempt = job.attempt + (counted and 1 or 0)
    job.due = q.now
    job.flags = bor(band(job.flags, bnot(F_LOST + F_HALTS)), F_NO_END + (halts and F_HALTS or 0))
    if halts then
        job.flags = bor(job.flags, F_RAN)
    end
    write(job)
    call('ZADD', halts and HALTED or DEAD, q.now, job.id)
    count('dead')
    if held and not halts then
        let_out(job.lane)
    end
end

local function kill(job)
    die(job, KILLED, false, false)
end

-- Return the mark of a job's run; MARKS has the mark, a space and the worker.
local function mark_of(id)
    local found = call('HGET', MARKS, id)
    return found and found:match('^(%S+)') or nil
end

-- End a marked job whose run did not succeed, as its mark says.
local function end_as_asked(job, mark, run)
    if mark == 'kill' then
        kill(job)
        if run then
            remember(run, 'dead')
        end
    else
        remove(job, mark == 'cancel' and 'cancelled' or nil, run)
    end
end
