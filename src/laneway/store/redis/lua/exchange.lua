-- exchange.lua: write what runs meant, then claim what may run, of one queue.
-- uses  clock recent jobs
-- KEYS  1 the queue's base
-- ARGV  1 the time or ''   2 worker   3 how many to claim   4 tokens must be greater than this
--       5 successes or '': a flat msgpack list of id, token, lane or false, run
--       6 other ends or '': a msgpack list of lists of id, token, outcome, after, error, run up to the outcome, whether it halts
--       7 results or '': a flat msgpack list of id, milliseconds, microseconds, value
-- returns how many are ready, whether the queue is paused, microseconds until the next is due (-1: none), how many are dead (-1: as before),
--         the first token, the refused of 5 by number, those of 6, the claims (id, record, …), words of lost claims (id, word, …);
--         -3 if it is a collector's queue: see collect.lua

if books[7] == 'lanes' then
    return -3
end
local worker = ARGV[2]
local held_some = false  -- it is among the holders
local running = RUNNING .. worker
local MOST_PASSED = 1000

-- -- settling ----------------------------------------------------------------------------------------------------

local function settle_successes(list)
    local refused, ids, kept = {}, {}, {}
    for n = 1, #list, 4 do
        ids[#ids + 1] = list[n]
    end
    for first = 1, #ids, 1000 do
        local tokens = call('HMGET', running, unpack(ids, first, math.min(first + 999, #ids)))
        for n = 1, #tokens do
            local at = first + n - 1
            local item = 4 * at - 3
            if tokens[n] ~= list[item + 1] or kept[ids[at]] then
                refused[#refused + 1] = at - 1
            else
                kept[ids[at]] = true
                kept[#kept + 1] = ids[at]
                runs[#runs + 1] = list[item + 3]
            end
        end
    end
    if #kept > 0 then
        held_some = true
        in_portions('HDEL', running, kept)
        in_portions('HDEL', JOB, kept)
        for first = 1, #kept, 1000 do
            forget_sides(unpack(kept, first, math.min(first + 999, #kept)))
        end
        for n = 1, #list, 4 do
            if list[n + 2] and kept[list[n]] then
                let_out(list[n + 2])
            end
        end
        count('processed', #kept)
    end
    return refused
end

local function settle(job, item)
    local outcome, after, error, run = item[3], item[4], item[5], item[6]
    local mark = mark_of(job.id)
    if mark then
        end_as_asked(job, mark, run)
    elseif outcome == 'cancelled' then
        leave(job, 'cancelled', run)
    elseif outcome == 'dead' then
        die(job, error, true, item[7])
        count('failed')
        remember(run, outcome)
    else
        job.flags = bor(band(job.flags, bnot(F_LOST)), F_RAN)
        job.due = now + after
        call('HDEL', LOST, job.id)
        if outcome == 'retrying' then
            job.attempt = job.attempt + 1
            add_error(job, error)
            call('ZADD', RETRY, job.due, job.id)
            count('failed')
            count('retried')
            remember(run, outcome)
        end
        write(job)
        wait(job)
    end
end

local function settle_others(list)
    local refused = {}
    for n, item in ipairs(list) do
        local record = call('HGET', running, item[1]) == item[2] and call('HGET', JOB, item[1])
        local job = record and open(item[1], record)
        if record then
            call('HDEL', running, item[1])
            changed, held_some = true, true
            if job then
                settle(job, item)
            else
                settle_unread(record, item)
            end
        else
            refused[#refused + 1] = n - 1
        end
    end
    return refused
end

-- -- claiming ----------------------------------------------------------------------------------------------------

local claims, words = {}, {}
local claimed, passed = 0, 0
local step = 4096  -- tokens carry the queue's number in their last twelve bits
local counter = math.max(tonumber(books[6]) or 0, math.floor(tonumber(ARGV[4]) / step) + 1)
local number = tonumber(books[3]) or 0
local first_token = (counter + 1) * step + number

local function too_old(job)
    return job.expires and band(job.flags, F_RAN + F_NO_END) == 0 and job.place + job.expires < now
end

local function expire(job)
    leave(job, 'cancelled')
    passed = passed + 1
end

-- A lane's holder leaves, and with it those next in its lane that are too old as well.
local function expire_holder(job)
    local lane = job.lane
    while passed < MOST_PASSED do
        expire(job)
        local id = call('HGET', LANES, lane)
        job = id and open(id, call('HGET', JOB, id))
        if not job or not too_old(job) or not call('ZSCORE', due_key(job.rank), entry(job)) then
            return
        end
        if passed < MOST_PASSED then
            call('ZREM', due_key(job.rank), entry(job))
        end
    end
end

-- What one portion of the walk finds, to be written together.
local held, retried, turning
local before = 0  -- claims of earlier portions

-- A job is the worker's. Most are plain, and have no `job` here.
local function take(id, record, job, holder)
    if job then
        if job.lane and not holder then
            call('HSET', LANES, job.lane, id)
        end
        forget_key(job)
        if band(job.flags, F_LOST) ~= 0 then
            words[#words + 1] = id
            words[#words + 1] = call('HGET', LOST, id) or ''
        end
        if job.attempt > 0 then
            retried[#retried + 1] = id
        end
    end
    counter = counter + 1
    local at = 2 * (claimed - before)
    held[at + 1] = id
    held[at + 2] = counter * step + number  -- below 2^53, and so written in full
    claims[2 * claimed + 1] = id
    claims[2 * claimed + 2] = record
    claimed = claimed + 1
end

-- A job that is not plain is taken, parked behind its lane's holder, or too old. If its lane goes on with another holder than the
-- portion knows of, that is done when the portion is written.
local function meet(id, record)
    local job = open(id, record)
    if not job then
        if record then
            take(id, record)
        else
            passed = passed + 1
        end
        return
    end
    local holder = job.lane and call('HGET', LANES, job.lane)
    if holder and holder ~= id then
        call('ZADD', PARKED .. job.lane, job.place, line_entry(job))
        count('blocked')
        passed = passed + 1
    elseif not too_old(job) then
        take(id, record, job, holder)
    elseif holder then
        turning = function() expire_holder(job) end
    else
        expire(job)
    end
end

-- Walk some of the due jobs of a rank; false at its end. Where many are passed over, portions grow.
local function portion(rank, most)
    local size = math.min(most - claimed + 2 * passed, MOST_PASSED)
    local entries = call('ZRANGEBYSCORE', due_key(rank), '-inf', now, 'LIMIT', 0, size)
    if #entries == 0 then
        return false
    end
    local ids, gone = {}, 0
    held, retried, turning, before = {}, {}, nil, claimed
    for n = 1, #entries do
        ids[n] = id_of(entries[n])
    end
    local records = call('HMGET', JOB, unpack(ids))
    while gone < #entries and claimed < most and passed < MOST_PASSED and not turning do
        gone = gone + 1
        local id, record = ids[gone], records[gone]
        -- Most jobs are plain: fresh, and with neither lane nor key nor end.
        local flags = record and record:byte(1) or 0
        if flags >= F_FRESH and #record >= 20 and band(flags, F_LANE + F_EXPIRES + F_UNIQUE) == 0 then
            take(id, record)
        else
            meet(id, record)
        end
    end
    -- All that were met leave, and they stand in front.
    call('ZREMRANGEBYRANK', due_key(rank), 0, gone - 1)
    if #held > 0 then
        hold(running, held, before == 0 and not held_some)
    end
    if #retried > 0 then
        in_portions('ZREM', RETRY, retried)
    end
    changed = true
    if turning then
        turning()
        return true
    end
    return #entries == size
end

local function claim(most)
    for _, rank in ipairs(each_rank()) do
        while claimed < most and passed < MOST_PASSED and portion(rank, most) do
        end
        if claimed == most or passed >= MOST_PASSED then
            break
        end
    end
    if #ranks > 0 and claimed > 0 then
        local used = ''
        for n = 1, #ranks do
            if call('EXISTS', due_key(ranks:byte(n))) == 1 then
                used = used .. ranks:sub(n, n)
            end
        end
        if used ~= ranks then
            ranks = used
            call('HSET', META, 'ranks', ranks)
        end
    end
end

-- -- the exchange ------------------------------------------------------------------------------------------------

local refused, refused_others = {}, {}
if ARGV[5] ~= '' then
    refused = settle_successes(cmsgpack.unpack(ARGV[5]))
end
if ARGV[7] ~= '' then
    local results = cmsgpack.unpack(ARGV[7]), {}
    for n = 1, #results, 4 do
        -- Only of those that were not refused: their jobs are gone.
        if call('HEXISTS', JOB, results[n]) == 0 then
            call('SET', RESULT .. results[n], struct.pack('>I8', now + results[n + 2]) .. results[n + 3], 'PX', results[n + 1])
        end
    end
end
if ARGV[6] ~= '' then
    refused_others = settle_others(cmsgpack.unpack(ARGV[6]))
end
if #refused + #refused_others > 0 then
    count('refused', #refused + #refused_others)
end
local most = tonumber(ARGV[3])
if most > 0 and not paused then
    if not changed then
        -- A write that needs no memory comes first: a server that is full refuses others, and work must get out all the same.
        call('HDEL', META, '')
    end
    claim(most)
end
if claimed > 0 then
    if not held_some then
        call('SADD', HOLDERS, worker)
    end
elseif changed and call('EXISTS', running) == 0 then
    call('SREM', HOLDERS, worker)
end
local left = ready()
finish(left, claimed > 0 and counter or nil)
local due_in = left == 0 and not paused and next_due() or -1
local dead = counts.dead and call('ZCARD', DEAD) + call('ZCARD', HALTED) or -1
return {left, paused and 1 or 0, due_in, dead, first_token, refused, refused_others, claims, words}
