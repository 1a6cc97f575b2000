-- push_uniform.lua: insert new jobs whose records begin with equal bytes, in order, into a queue that has had jobs before. In all
-- other cases it does nothing, and the client calls push.lua.
-- uses   clock queue commands bell record arrived
-- makes  finished: finished
-- KEYS  1 the queue's base
-- ARGV  1 the time or ''   2 when: '' at once, else delay@at   3 the beginning of their records: flags, rank, and the equal part behind
--       the numbers; then all ids, then for each job the rest of its record
-- returns 0 if they were inserted, -4 if nothing was done: the queue is new, a collector's, or closed by a copy, or one of the jobs
--         exists, or comes twice

if not books[B_NUMBER] or books[B_KIND] == 'lanes' or books[B_MOVED] then
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

local place = now
if ARGV[2] ~= '' then
    local delay, at = ARGV[2]:match('^(%d+)@(%d+)$')
    place = math.max(now + tonumber(delay), tonumber(at))
end
local flags, rank = ARGV[3]:byte(1, 2)
-- The records differ in their sequence numbers and in their ends.
local alike = new_record(ARGV[3], 0, place)
local before, after = alike:sub(1, R_SEQ - 1), alike:sub(R_ENQUEUED)
local seq = math.max((tonumber(books[B_SEQ]) or 0) + 1, now)
local due = string.format('%d', place)  -- formatted once, instead of for each job
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
    -- None of these ids existed before, so one comes twice.
    for from = 4, number + 3, 1000 do
        call('HDEL', JOB, unpack(ARGV, from, math.min(from + 999, number + 3)))
    end
    return -4
end
if call('EXISTS', FINISHED) == 1 then
    for from = 4, number + 3, 1000 do
        need('finished').forget_finished(ARGV, from, math.min(from + 999, number + 3))
    end
end
local due_key = DUE .. (rank - 100)
many('ZADD', due_key, waits, 1, #waits)
if rank ~= 100 and not q.ranks:find(string.char(rank), 1, true) then
    call('HSET', META, 'ranks', q.ranks .. string.char(rank))
end
call('HSET', META, 'now', now, 'seq', seq + number - 1, 'enqueued', (tonumber(books[B_ENQUEUED]) or 0) + number)
if #ARGV[3] > 2 then
    arrive((read_texts(flags, ARGV[3], 3)), number)
else
    local tasks = {}
    for n = 1, number do
        local task = read_texts(flags, ARGV[3 + number + n], 1)
        tasks[task] = (tasks[task] or 0) + 1
    end
    for task, times in pairs(tasks) do
        arrive(task, times)
    end
end
-- A waiting worker knows when the first job is due: wake it if these are due earlier.
if call('ZRANGE', due_key, 0, 0)[1] == waits[2] then
    ring()
end
return 0
