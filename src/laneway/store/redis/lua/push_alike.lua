-- push_alike.lua: take new jobs that begin alike into a queue that has had some, in order. Whatever is unusual is left to push.lua.
-- uses  clock arrived
-- KEYS  1 the queue's base
-- ARGV  1 the time or ''   2 when: '' at once, else delay@at   3 what their records begin with: flags, rank, and what comes after
--       the numbers; then all ids, then for each what its record goes on with
-- returns 0 if they were taken, -4 if nothing was done: the queue is new or a collector's, or one of them is there, or comes twice

local meta = call('HMGET', META, 'now', 'seq', 'number', 'enqueued', 'kind', 'ranks')
if not meta[3] or meta[5] then
    return -4
end

local number = (#ARGV - 3) / 2
for from = 4, number + 3, 1000 do
    local found = call('HMGET', JOB, unpack(ARGV, from, math.min(from + 999, number + 3)))
    for n = 1, #found do
        if found[n] then
            return -4
        end
    end
end

local now = clock(ARGV[1], meta[1])
local place = now
if ARGV[2] ~= '' then
    local delay, at = ARGV[2]:match('^(%d+)@(%d+)$')
    place = math.max(now + tonumber(delay), tonumber(at))
end
local flags, rank, more = ARGV[3]:byte(1), ARGV[3]:byte(2), ARGV[3]:sub(3)
-- A record is: before its sequence number (of 7 bytes: the first is 0), the number, after it.
local before, after
if place == now then
    before, after = string.char(flags + 128, rank, 0), struct.pack('>I8', now) .. more
else
    before, after = string.char(flags, rank, 0), struct.pack('>I8I8I8I2', now, place, place, 0) .. more
end

local seq = math.max((tonumber(meta[2]) or 0) + 1, now)
local due = string.format('%.0f', place)  -- a number would be written out again for each
local jobs, waits, pack = {}, {}, struct.pack
for n = 1, number do
    local id, seq7 = ARGV[3 + n], pack('>I7', seq + n - 1)
    jobs[2 * n - 1] = id
    jobs[2 * n] = before .. seq7 .. after .. ARGV[3 + number + n]
    waits[2 * n - 1] = due
    waits[2 * n] = '\255' .. seq7 .. id
end

local new = 0
for first = 1, 2 * number, 1000 do
    new = new + call('HSET', JOB, unpack(jobs, first, math.min(first + 999, 2 * number)))
end
if new < number then
    -- None of them was there, so one comes twice.
    for from = 4, number + 3, 1000 do
        call('HDEL', JOB, unpack(ARGV, from, math.min(from + 999, number + 3)))
    end
    return -4
end
local due_key = DUE .. (rank - 100)
in_portions('ZADD', due_key, waits)
if rank ~= 100 and not (meta[6] or ''):find(string.char(rank), 1, true) then
    call('HSET', META, 'ranks', (meta[6] or '') .. string.char(rank))
end
call('HSET', META, 'now', now, 'seq', seq + number - 1, 'enqueued', (tonumber(meta[4]) or 0) + number)
if more ~= '' then
    arrive(now, task_of(flags, ARGV[3], 3), number)
else
    local tasks = {}
    for n = 1, number do
        local task = task_of(flags, ARGV[3 + number + n], 1)
        tasks[task] = (tasks[task] or 0) + 1
    end
    for task, times in pairs(tasks) do
        arrive(now, task, times)
    end
end
-- Who waits knows when the first is due: it must hear of one that comes before.
if call('ZRANGE', due_key, 0, 0)[1] == waits[2] then
    ring()
end
return 0
