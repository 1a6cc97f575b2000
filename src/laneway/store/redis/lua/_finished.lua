-- _finished.lua: records of finished jobs. Stands behind _queue.lua.

-- Delete records of finished jobs; return how many there were.
local function forget_finished(ids, first, last)
    local gone = call('HDEL', FINISHED, unpack(ids, first, last))
    if gone > 0 then
        call('ZREM', ENDED, unpack(ids, first, last))
        call('ZREM', KEPT, unpack(ids, first, last))
    end
    return gone
end

-- Keep records of jobs that end, before they leave the store. `list` has six values per job: id, state, how long the record is
-- kept, when the run began, when it ended, and the result. `held`: the ids that the worker holds, or nil if it holds all. The
-- bytes of a record are described in finished.py.
local function keep_finished(list, worker, held)
    local beside, records, ended, kept = call('EXISTS', ERRORS, NOTES) > 0, {}, {}, {}
    for n = 1, #list, 6 do
        local id = list[n]
        local record = (not held or held[id]) and call('HGET', JOB, id)
        if record then
            local errors = beside and call('HGET', ERRORS, id) or ''
            local notes = beside and call('HGET', NOTES, id) or ''
            local stop = list[n + 4] > 0 and list[n + 4] or now
            local at, pack = #records, struct.pack
            records[at + 1], records[at + 2] = id, pack('>BI8I8I8', list[n + 1], now + list[n + 2], list[n + 3], stop) .. pack(
                '>I4c0I4c0I4c0I4c0', #worker, worker, #record, record, #errors, errors, #notes, notes
            ) .. list[n + 5]
            ended[at + 1], ended[at + 2] = string.format('%d', stop), id
            kept[at + 1], kept[at + 2] = string.format('%d', now + list[n + 2]), id
        end
    end
    for from = 1, #records, 1000 do
        local to = math.min(from + 999, #records)
        call('HSET', FINISHED, unpack(records, from, to))
        call('ZADD', ENDED, unpack(ended, from, to))
        call('ZADD', KEPT, unpack(kept, from, to))
    end
    local old = call('ZRANGEBYSCORE', KEPT, '-inf', q.now_text, 'LIMIT', '0', '1000')
    if old[1] then
        call('HDEL', FINISHED, unpack(old))
        call('ZREM', ENDED, unpack(old))
        call('ZREM', KEPT, unpack(old))
    end
    local last = tonumber(call('ZREVRANGE', KEPT, '0', '0', 'WITHSCORES')[2])
    if last then
        local after = string.format('%d', math.ceil((last - now) / 1000) + 1000)
        call('PEXPIRE', FINISHED, after)
        call('PEXPIRE', ENDED, after)
        call('PEXPIRE', KEPT, after)
    end
end
