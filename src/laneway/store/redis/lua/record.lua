-- record.lua: store a worker's report, unless it was stored before.
-- uses   clock
-- KEYS  1 the store's base
-- ARGV  1 the time or ''   2 worker or ''   3 the report's number   4 its figures or ''   5 how many faults are kept, and msgpack
--       lists: 6 counters: name, by   7 faults: id, count, sample   8 learned: task, six numbers
-- returns the store's time, and 1 if this worker is to close complete intervals, else 0

local noted, closed, closing = unpack(call('HMGET', STATISTICS, 'now', 'closed', 'closing'))
now = math.max(now, tonumber(noted) or 0)
local stretch = math.floor(now / 10000000)
local counters, faults, learned = cmsgpack.unpack(ARGV[6]), cmsgpack.unpack(ARGV[7]), cmsgpack.unpack(ARGV[8])

local function is_new()
    if ARGV[2] == '' then
        return true
    end
    local last = call('HGET', REPORTERS, ARGV[2])
    if last and tonumber(last) >= tonumber(ARGV[3]) then
        return false
    end
    call('HSET', REPORTERS, ARGV[2], ARGV[3])
    call('ZADD', REPORTED, now, ARGV[2])
    return true
end

local function count()
    for n = 1, #counters, 2 do
        call('HINCRBY', COUNTERS, counters[n], counters[n + 1])
    end
end

local function see(keep)
    for n = 1, #faults, 3 do
        local id = faults[n]
        call('HINCRBY', FAULT_COUNTS, id, faults[n + 1])
        call('HSETNX', FAULT_FIRST, id, now)
        call('HSET', FAULTS, id, faults[n + 2])
        call('ZADD', FAULT_LAST, now, id)
    end
    local too_many = #faults > 0 and call('ZCARD', FAULT_LAST) - keep or 0
    if too_many > 0 then
        for _, id in ipairs(call('ZRANGE', FAULT_LAST, 0, too_many - 1)) do
            call('ZREM', FAULT_LAST, id)
            for _, key in ipairs({FAULTS, FAULT_COUNTS, FAULT_FIRST}) do
                call('HDEL', key, id)
            end
        end
    end
end

local function learn()
    for n = 1, #learned, 7 do
        local known = call('HGET', LEARNED, learned[n])
        local seen = known and #known == 48 and {struct.unpack('>dddddd', known)} or {0, 0, 0, 0, 0, 0}
        for i = 1, 6 do
            seen[i] = seen[i] + learned[n + i]
        end
        call('HSET', LEARNED, learned[n], struct.pack('>dddddd', unpack(seen, 1, 6)))
    end
end

if is_new() then
    if ARGV[4] ~= '' then
        call('RPUSH', REPORTS .. stretch, ARGV[4])
        call('SADD', OPEN, stretch)
    end
    count()
    see(tonumber(ARGV[5]))
    learn()
end

local due = math.floor((now - 10000000) / 10000000) > (tonumber(closed) or 0)
closing = tonumber(closing)
if due and not (closing and closing > now and closing <= now + 5000000) then
    call('HSET', STATISTICS, 'now', now, 'closing', now + 5000000)
    return {now, 1}
end
call('HSET', STATISTICS, 'now', now)
return {now, 0}
