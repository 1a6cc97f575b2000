-- _step.lua: a step that changes a queue: the one way out, and how it ends. Stands behind _queue.lua, _commands.lua and _bell.lua.

-- The lane of a fresh job to which no rule applies but that it has a lane, and its rank; nil: it is another, or cannot be read.
local function lane_alone(record)
    local flags, rank, rules, a, b = record:byte(1, 3)
    if flags ~= PLAIN_IN_LANE or rules ~= 0 or rank > 200 then
        return nil
    end
    a, b = record:byte(19, 20)
    local task_at = b and 21 + 256 * a + b or #record
    a, b = record:byte(task_at, task_at + 1)
    if b and #record > task_at + 256 * a + b then
        return record:sub(21, task_at - 1), rank
    end
end

-- The holders of these lanes have left, `lanes` from `first` to `last`: '' (there is none), or a colon and the lane. The next by
-- place holds its lane at once and waits. Most are fresh, and nothing but their lane matters: those are written together. If there is
-- but one of them, an exchange that claims may take it without an index: it is `q.handed`, if that is nil before.
local function hand_on(lanes, first, last)
    local holders, free, waits, came = {}, {}, {}, nil
    for n = first, last do
        if lanes[n] ~= '' then
            local lane, id = lanes[n]:sub(2), nil
            repeat
                local found, alone, rank = call('ZPOPMIN', PARKED .. lane), nil, nil
                local entry = found[1]
                if entry then
                    id = entry:sub(9)
                    q.blocked = q.blocked - 1
                    local record = call('HGET', JOB, id)
                    if record then
                        alone, rank = lane_alone(record)
                    end
                    if alone == lane and rank == 100 then
                        waits[#waits + 1] = found[2]
                        waits[#waits + 1] = entry
                        came = {id = id, record = record}
                    elseif not need('jobs').come_forward(id, record) then
                        id = nil
                    end
                end
            until id or not entry
            if id then
                holders[#holders + 1] = lane
                holders[#holders + 1] = id
            else
                free[#free + 1] = lane
            end
        end
    end
    many('HSET', LANES, holders, 1, #holders)
    many('HDEL', LANES, free, 1, #free)
    if #waits == 2 and q.handed == nil then
        came.due, came.entry, q.handed = waits[1], waits[2], came
    else
        many('ZADD', DUE .. '0', waits, 1, #waits)
    end
end

-- The one way out: jobs that are in no index leave the store, with what was kept beside their records, and their lanes go on.
-- `ids` from `first` to `last`; as many `lanes` from `lane_at`, as in hand_on, or none.
local function leave(ids, first, last, lanes, lane_at)
    q.changed = true
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

-- Write the books, and ring if somebody who waits must look again. `left`: how many are ready; `counter`: of the last token, if any
-- were given.
local function finish(left, counter)
    if not q.changed then
        return
    end
    local books, written, at = q.books, {'now', q.now_text}, 2
    for name, by in pairs(q.counts) do
        if name == 'processed' then
            written[3], written[4], at = name, (tonumber(books[B_PROCESSED]) or 0) + by, 4
        elseif by ~= 0 then
            call('HINCRBY', META, name, by)
        end
    end
    if q.runs then
        local kept = (tonumber(books[B_RUNS]) or 0) + q.run_count
        call('RPUSH', RECENT, struct.pack('>I8I4', q.now, q.run_count) .. q.runs)
        if kept > KEEP_RUNS + 500 then  -- some more than must be, so that few calls have to forget any
            kept = need('jobs').forget_runs(kept)
        end
        written[at + 1], written[at + 2], at = 'runs', kept, at + 2
    end
    if counter then
        written[at + 1], written[at + 2], at = 'token', string.format('%d', counter), at + 2
    end
    if q.blocked ~= (tonumber(books[B_BLOCKED]) or 0) then
        written[at + 1], written[at + 2], at = 'blocked', q.blocked, at + 2
    end
    if q.seq then
        written[at + 1], written[at + 2] = 'seq', string.format('%d', q.seq)
    end
    call('HSET', META, unpack(written))
    local rings = left > 0 and not q.paused
    if q.later then
        for rank, head in pairs(q.later) do
            rings = rings or call('ZRANGE', DUE .. (rank - 100), 0, 0)[1] == head[2]
        end
    end
    if rings then
        ring()
    end
end
