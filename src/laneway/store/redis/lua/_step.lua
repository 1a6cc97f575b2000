-- _step.lua: a step that changes a queue: what it adds to the books, the one way out, and how it ends. Stands behind _queue.lua and
-- _commands.lua.
--
-- A server makes the functions of a script anew in each call, and each costs as much as a small command: so these are few.

local byte, sub, format = string.byte, string.sub, string.format
local changed = false  -- the books are to be written
local counts = {}  -- what is counted: name → how many more
local runs, run_count = {}, 0  -- finished runs, JSON: texts with one or several, and how many these are
local later = {}  -- who waits since this step and is due later: rank → {due, entry}
local seq, blocked = books.seq, books.blocked
local may_hand, handed = false, nil  -- see hand_on

-- The lane of a fresh job to which no rule applies but that it has a lane, and its rank; nil: it is another, or cannot be read.
local function lane_alone(record)
    local flags, rank, rules, a, b = byte(record, 1, 3)
    if flags ~= PLAIN_IN_LANE or rules ~= 0 or rank > 200 then
        return nil
    end
    a, b = byte(record, 19, 20)
    local task_at = b and 21 + 256 * a + b or #record
    a, b = byte(record, task_at, task_at + 1)
    if b and #record > task_at + 256 * a + b then
        return sub(record, 21, task_at - 1), rank
    end
end

-- The holders of these lanes have left, `lanes` from `first` to `last`: '' (there is none), or a colon and the lane. The next by
-- place holds its lane at once and waits. Most are fresh, and nothing but their lane matters: those are written together; and if
-- there is but one of them, an exchange may claim it without an index: it is `handed`.
local function hand_on(lanes, first, last)
    local holders, free, waits, size, id, record = {}, {}, {}, 0, nil, nil
    local came
    for n = first, last do
        if lanes[n] ~= '' then
            local lane = sub(lanes[n], 2)
            repeat
                local found, alone, rank = call('ZPOPMIN', PARKED .. lane), nil, nil
                id = found[1] and sub(found[1], 9)
                if id then
                    blocked = blocked - 1
                    record = call('HGET', JOB, id)
                    if record then
                        alone, rank = lane_alone(record)
                    end
                    if alone == lane and rank == 100 then
                        size = size + 2
                        waits[size - 1], waits[size] = found[2], found[1]
                        came = size == 2 and {id = id, record = record}
                    elseif not jobs().come_forward(id, record) then
                        id = nil
                        found = nil
                    end
                end
            until found
            if id then
                holders[#holders + 1] = lane
                holders[#holders + 1] = id
            else
                free[#free + 1] = lane
            end
        end
    end
    if holders[1] then
        many('HSET', LANES, holders, 1, #holders)
    end
    if free[1] then
        many('HDEL', LANES, free, 1, #free)
    end
    if came and may_hand and not handed then
        came.due, came.entry, handed = waits[1], waits[2], came
    elseif size > 0 then
        many('ZADD', DUE .. '0', waits, 1, size)
    end
end

-- The one way out: jobs that are in no index leave the store, with what was kept beside their records, and their lanes go on.
-- `ids` from `first` to `last`; as many `lanes` from `lane_at`, as in hand_on, or none.
local function leave(ids, first, last, lanes, lane_at)
    changed = true
    many('HDEL', JOB, ids, first, last)
    if call('EXISTS', ERRORS, NOTES, LOST, MARKS) > 0 then
        many('HDEL', ERRORS, ids, first, last)
        many('HDEL', NOTES, ids, first, last)
        many('HDEL', LOST, ids, first, last)
        many('HDEL', MARKS, ids, first, last)
    end
    if lanes then
        hand_on(lanes, lane_at, lane_at + last - first)
    end
end

-- Forget the oldest runs beyond those that are kept, of so many that there are; returns how many are left. Some more are kept than
-- must be, so that few calls have to forget any.
local function forget_runs(kept)
    while kept > KEEP_RUNS + 500 do
        local gone = 0
        for _, oldest in ipairs(call('LRANGE', RECENT, 0, 99)) do
            local size = #oldest >= 12 and struct.unpack('>I4', oldest, 9) or 0
            if kept - size < KEEP_RUNS then
                break
            end
            kept, gone = kept - size, gone + 1
        end
        if gone == 0 then
            break
        end
        call('LTRIM', RECENT, gone, -1)
    end
    return kept
end

-- Write the books, and ring if somebody who waits must look again. `left`: how many are ready; `counter`: of the last token, if any
-- were given.
local function finish(left, counter)
    if not changed then
        return
    end
    local written = {'now', now_text}
    for name, by in pairs(counts) do
        if name == 'processed' then
            written[3], written[4] = name, books.processed + by
        elseif by ~= 0 then
            call('HINCRBY', META, name, by)
        end
    end
    local at = #written
    if run_count > 0 then
        call('RPUSH', RECENT, struct.pack('>I8I4', now, run_count) .. table.concat(runs, ','))
        written[at + 1], written[at + 2], at = 'runs', forget_runs(books.runs + run_count), at + 2
    end
    if counter then
        written[at + 1], written[at + 2], at = 'token', format('%d', counter), at + 2
    end
    if blocked ~= books.blocked then
        written[at + 1], written[at + 2], at = 'blocked', blocked, at + 2
    end
    if seq ~= books.seq then
        written[at + 1], written[at + 2] = 'seq', format('%d', seq)
    end
    call('HSET', META, unpack(written))
    local rings = left > 0 and not books.paused
    for rank, head in pairs(later) do
        rings = rings or call('ZRANGE', DUE .. (rank - 100), 0, 0)[1] == head[2]
    end
    if rings then
        ring()
    end
end
