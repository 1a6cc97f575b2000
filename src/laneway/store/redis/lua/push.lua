-- push.lua: insert jobs of one queue, in order. Their lanes are not looked at: a claim does that.
-- uses   clock queue open commands bell record arrived
-- makes  finished: finished
-- KEYS  1 the queue's base
-- ARGV  1 the time or ''   2 the queue's number, or '' if it should have one   3 how many sequence numbers the whole push takes
--       4 which of them these jobs have, a msgpack list, or '' if one after the other   5 schedule, outbox or ''   6 its occurrence, or
--       its numbers (first-last)
--       then three per job: id, when ('' at once, else delay@at), flags and rank and what comes after a record's numbers
-- returns 0 if all are new, else a list: 1 for a new job, else the id of the existing job that prevented it;
--         -1 if the queue has no number, -2 if the occurrence or the first number came before, -3 if it is a collector's queue

if books[B_KIND] == 'lanes' then
    if call('HLEN', JOB) > 0 then
        return -3
    end
    call('HDEL', META, 'kind')
end
if not books[B_NUMBER] and ARGV[2] == '' then
    return -1
end
local first = math.max((tonumber(books[B_SEQ]) or 0) + 1, now)  -- sequence number

-- Most pushes bring one plain job that is due now: it needs half as many commands as the code below.
local flags, rank = (ARGV[9] or ''):byte(1, 2)
if #ARGV == 9 and ARGV[8] == '' and ARGV[5] == '' and books[B_NUMBER] and flags + F_FRESH == PLAIN and rank == 100 then
    if call('HSETNX', JOB, ARGV[7], new_record(ARGV[9], first, now)) == 0 then
        return {ARGV[7]}
    end
    if call('EXISTS', FINISHED) == 1 then
        need('finished').forget_finished(ARGV, 7, 7)
    end
    local entry = line_entry(first, ARGV[7])
    call('ZADD', DUE .. '0', q.now_text, entry)
    if call('ZRANGE', DUE .. '0', 0, 0)[1] == entry then
        ring()
    end
    call('HSET', META, 'now', q.now_text, 'seq', first, 'enqueued', (tonumber(books[B_ENQUEUED]) or 0) + 1)
    arrive((read_texts(0, ARGV[9], 3)), 1)
    return 0
end

if ARGV[5] ~= '' and need('first').came_before(ARGV[5], ARGV[6]) then
    return -2
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

local jobs, due_by_rank, heads, answers, tasks, taken = {}, {}, {}, {}, {}, 0
for n = 1, number do
    local id, when, rest = ARGV[4 + 3 * n], ARGV[5 + 3 * n], ARGV[6 + 3 * n]
    local met = there[id] and id
    local task, _, key = read_texts(rest:byte(1), rest, 3)
    if key and not met then
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
        local stands = line_entry(seq, id)
        jobs[#jobs + 1] = id
        jobs[#jobs + 1] = new_record(rest, seq, place)
        local rank = rest:byte(2)
        local due = due_by_rank[rank]
        if not due then
            due = {}
            due_by_rank[rank] = due
        end
        due[#due + 1] = place
        due[#due + 1] = stands
        local head = heads[rank]
        if not head or place < head[1] then
            heads[rank] = {place, stands}
        end
        if key then
            call('HSET', UNIQUE, key, id)
            if band(rest:byte(1), F_UNTIL_END) ~= 0 then
                call('HSET', END_KEYS, id, key)
            end
        end
        there[id] = true
        taken = taken + 1
        tasks[task] = (tasks[task] or 0) + 1
    end
end

local rung = false
if taken > 0 then
    if call('EXISTS', FINISHED) == 1 then
        for n = 1, #jobs, 2 do
            need('finished').forget_finished(jobs, n, n)
        end
    end
    many('HSET', JOB, jobs, 1, #jobs)
    for rank, due in pairs(due_by_rank) do
        many('ZADD', DUE .. (rank - 100), due, 1, #due)
        -- A waiting worker knows when the first job is due: wake it if the new job is due earlier.
        rung = rung or call('ZRANGE', DUE .. (rank - 100), 0, 0)[1] == heads[rank][2]
        if rank ~= 100 and not q.ranks:find(string.char(rank), 1, true) then
            q.ranks = q.ranks .. string.char(rank)
            call('HSET', META, 'ranks', q.ranks)
        end
    end
    call('HINCRBY', META, 'enqueued', taken)
    for task, times in pairs(tasks) do
        arrive(task, times)
    end
end
call('HSET', META, 'now', now, 'seq', first + ARGV[3] - 1)
if not books[B_NUMBER] then
    call('HSET', META, 'number', ARGV[2])
end
if ARGV[5] ~= '' then
    need('first').has_come(ARGV[5], ARGV[6])
end
if rung then
    ring()
end
return taken == number and 0 or answers
