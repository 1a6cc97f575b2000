-- _step.lua: parts of each script that changes a queue: the one exit of jobs, and the end of the step. A server creates all
-- functions of a script anew in each call, so there are few here. Stands behind _queue.lua.

-- Return the lane and the rank of a job that never ran, is due at its place and has no rule but its lane; nil: it is another job,
-- or its record cannot be read.
local function lane_alone(record)
    local flags, rank, rules, a, b = record:byte(1, 3)
    if flags ~= PLAIN_IN_LANE or rules ~= 0 or rank > 200 then
        return nil
    end
    a, b = record:byte(R_FRESH_TEXTS, R_FRESH_TEXTS + 1)
    local task_at = b and R_FRESH_TEXTS + 2 + 256 * a + b or #record
    a, b = record:byte(task_at, task_at + 1)
    if b and #record > task_at + 256 * a + b then
        return record:sub(R_FRESH_TEXTS + 2, task_at - 1), rank
    end
end

-- The one exit: up to 1,000 jobs leave the store, with all that is stored beside their records, and their lanes go on. The caller
-- has taken them out of their indexes. `ids`: a list; those from `first` to `last` leave. nil: no job leaves, and only lanes go
-- on. `lanes`: a list with one value per job from `lane_at` on, '' for a job without a lane, else a colon and the lane; or nil:
-- no lane goes on.
--
-- The next job of a lane, by place, becomes its holder and waits. Most such jobs never ran and have no rule but the lane: these
-- are written together. If one job leaves and the script `wants` the next one, and that is such a job, then it is put into no
-- index: its entry, due time and record are returned.
local function leave(ids, first, last, lanes, lane_at, wants)
    q.changed = true
    if ids then
        call('HDEL', JOB, unpack(ids, first, last))
        if call('EXISTS', ERRORS, NOTES, LOST, MARKS, END_KEYS) > 0 then
            if call('EXISTS', END_KEYS) == 1 then
                for n, key in ipairs(call('HMGET', END_KEYS, unpack(ids, first, last))) do
                    if key and call('HGET', UNIQUE, key) == ids[first + n - 1] then
                        call('HDEL', UNIQUE, key)
                    end
                end
                call('HDEL', END_KEYS, unpack(ids, first, last))
            end
            call('HDEL', ERRORS, unpack(ids, first, last))
            call('HDEL', NOTES, unpack(ids, first, last))
            call('HDEL', LOST, unpack(ids, first, last))
            call('HDEL', MARKS, unpack(ids, first, last))
        end
    end
    if not lanes then
        return
    end
    local holders, free, waits  -- each list is created when it is needed
    for n = lane_at, lane_at + last - first do
        if lanes[n] ~= '' then
            local lane, id = lanes[n]:sub(2), nil
            repeat
                local found, alone, rank = call('ZPOPMIN', PARKED .. lane), nil, nil
                local entry = found[1]
                if entry then
                    id = entry:sub(E_ID)
                    q.blocked = q.blocked - 1
                    local record = call('HGET', JOB, id)
                    if record then
                        alone, rank = lane_alone(record)
                    end
                    if alone == lane and rank == 100 then
                        if wants then
                            call('HSET', LANES, lane, id)
                            return entry, found[2], record
                        end
                        waits = waits or {}
                        waits[#waits + 1] = found[2]
                        waits[#waits + 1] = entry
                    elseif not need('jobs').come_forward(id, record) then
                        id = nil
                    end
                end
            until id or not entry
            if id then
                holders = holders or {}
                holders[#holders + 1] = lane
                holders[#holders + 1] = id
            else
                free = free or {}
                free[#free + 1] = lane
            end
        end
    end
    if holders then
        call('HSET', LANES, unpack(holders))
    end
    if free then
        call('HDEL', LANES, unpack(free))
    end
    if waits then
        call('ZADD', DUE .. '0', unpack(waits))
    end
end

-- Write the books, and ring the bell if a waiting worker must look again. `left`: how many jobs are ready. An exchange also
-- passes the counter of its last token, if it claimed anything, and how many runs succeeded, with their JSON.
local function finish(left, counter, done, runs)
    if not q.changed then
        return
    end
    local books = q.books
    local kept = tonumber(books[B_RUNS]) or 0
    if q.counts then
        for name, by in pairs(q.counts) do
            if by ~= 0 then
                call('HINCRBY', META, name, by)
            end
        end
    end
    if q.seq then
        call('HSET', META, 'seq', string.format('%d', q.seq))
    end
    if runs or q.runs then
        local number = (done or 0) + (q.runs and #q.runs or 0)
        local others = q.runs and table.concat(q.runs, ',')
        call('RPUSH', RECENT, struct.pack('>I8I4', q.now, number) .. (runs and others and runs .. ',' .. others or runs or others))
        kept = kept + number
        if kept > KEEP_RUNS + 500 then  -- 500 more than are kept, so that few calls have to delete any
            kept = need('jobs').forget_runs(kept)
        end
    end
    local format, processed = string.format, (tonumber(books[B_PROCESSED]) or 0) + (done or 0) + (q.processed or 0)
    local token = counter and format('%d', counter) or books[B_TOKEN] or '0'
    -- Formatting a number takes the server longer than it takes Lua.
    call(
        'HSET', META, 'now', q.now_text, 'processed', format('%d', processed), 'runs', format('%d', kept),
        'blocked', format('%d', q.blocked), 'token', token
    )
    local rings = left > 0 and not books[B_PAUSED]
    if q.later then
        for rank, head in pairs(q.later) do
            rings = rings or call('ZRANGE', DUE .. (rank - 100), 0, 0)[1] == head[2]
        end
    end
    if rings and call('EXISTS', BELL) == 0 then
        need('bell').ring()
    end
end
