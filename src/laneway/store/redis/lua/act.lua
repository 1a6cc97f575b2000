-- act.lua: perform a user's action on jobs of a queue.
-- uses   clock queue open standing step
-- makes  jobs: record jobs finished find lanes
-- opens  jobs
-- KEYS  1 the queue's base
-- ARGV  1 the time or ''   2 retry, cancel, delete, kill or reschedule   3 delay   4 at
--       5 a filter that each job must match now, a msgpack map of state, task, lane, error, failing   then ids
-- returns for each 1 if it was changed, 0 if not, -1 if it is not in the queue

local band, bnot = bit.band, bit.bnot
local action, delay, at = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local which = cmsgpack.unpack(ARGV[5])

local function last_error_has(id, text)
    local list = read_errors(call('HGET', ERRORS, id) or '')
    local read, error = pcall(cjson.decode, list[#list] or '')
    if not read or type(error) ~= 'table' then
        return false
    end
    return tostring(error.kind):find(text, 1, true) or tostring(error.message):find(text, 1, true)
end

local function fits(job, place)
    local state = which.state
    if state == 'waiting' then
        if place ~= 'waiting' and place ~= 'parked' then
            return false
        end
    elseif state and state ~= state_of(job, place) then
        return false
    end
    if which.task and which.task ~= job.task or which.lane and which.lane ~= job.lane then
        return false
    end
    if which.failing and (job.attempt == 0 or place == 'dead') then
        return false
    end
    return not which.error or last_error_has(job.id, which.error)
end

-- Take a job out of its index.
local function take_out(job, place)
    if place == 'waiting' then
        call('ZREM', due_key(job.rank), entry(job))
    elseif place == 'parked' then
        call('ZREM', PARKED .. job.lane, line_entry(job.seq, job.id))
        q.blocked, q.changed = q.blocked - 1, true
    elseif place == 'dead' then
        call('ZREM', DEAD, job.id)
        call('ZREM', HALTED, job.id)
    end
    if job.attempt > 0 then
        call('ZREM', RETRY, job.id)
    end
end

local function mark(job, worker)
    call('HSET', MARKS, job.id, action .. ' ' .. worker)
    q.changed = true
    return 1
end

local function move_due(job, place, due, failed)
    if place == 'parked' then
        -- It keeps its place in the lane. When it becomes the holder, it is due at this time.
        job.due = due
        write(job)
        q.changed = true
        return
    end
    take_out(job, place)
    job.due = due
    write(job)
    if failed then
        call('ZADD', RETRY, due, job.id)
    end
    wait(job)
end

local function retry(job, place)
    if place == 'dead' then
        local halted = band(job.flags, F_HALTS) ~= 0
        take_out(job, place)
        job.attempt = 0
        -- A job that halts its lane keeps its place, and counts as started.
        job.flags = band(job.flags, bnot(F_HALTS + (halted and 0 or F_RAN)))
        job.due = q.now
        if not halted then
            job.place, job.seq = q.now, next_seq()
        end
        write(job)
        wait(job)
        local key = call('HGET', END_KEYS, job.id)
        if key then
            call('HSETNX', UNIQUE, key, job.id)
        end
        return 1
    end
    if place == 'waiting' and job.due > q.now and (holds(job) or call('ZSCORE', RETRY, job.id)) then
        move_due(job, place, q.now, false)
        return 1
    end
    return 0
end

local function reschedule(job, place)
    if place ~= 'waiting' and place ~= 'parked' then
        return 0
    end
    local due = math.max(at, q.now + delay)
    if band(job.flags, F_RAN) ~= 0 then
        move_due(job, place, due, call('ZSCORE', RETRY, job.id))
        return 1
    end
    local held = holds(job)
    take_out(job, place)
    job.due, job.place, job.seq = due, due, next_seq()
    write(job)
    wait(job)
    if held then
        let_out(job.lane)
    end
    return 1
end

local actions = {
    retry = retry,
    reschedule = reschedule,
    cancel = function(job, place)
        if place == 'dead' then
            return 0
        end
        take_out(job, place)
        remove(job, 'cancelled')
        return 1
    end,
    delete = function(job, place)
        take_out(job, place)
        remove(job, nil)
        return 1
    end,
    kill = function(job, place)
        if place == 'dead' then
            return 0
        end
        take_out(job, place)
        kill(job)
        return 1
    end,
}

-- -- lanes of a collector ------------------------------------------------------------------------------------------

-- Put a dead payload back into its lane. The lane is due now, with attempts counted from 0. The payload's arrival is the moment
-- of its death.
local function replay(dead)
    local score = struct.unpack('>d', dead.record, dead.body_at)
    local id, body_at = struct.unpack('>I2c0', dead.record, dead.body_at + 8)
    take_out(dead, 'dead')
    leave({dead.id}, 1, 1)
    local lane = open_lane(id, call('HGET', JOB, id))
    if not lane then
        lane = new_lane(id, dead.lane, dead.task, q.now)
        write_lane(lane)
        wait(lane)
    elseif waits(lane) then
        take_out(lane, 'waiting')
        lane.attempt, lane.due = 0, q.now
        write_lane(lane)
        wait(lane)
    else
        lane.next_since = lane.next_due > 0 and lane.next_since or q.now
        lane.next_due = q.now
        write_lane(lane)
    end
    local hash = dead.id:sub(3):gsub('%x%x', function(two) return string.char(tonumber(two, 16)) end)
    add_payload(WAITS .. lane.lane, BODIES .. lane.lane, hash, score, dead.seq, dead.record:sub(body_at))
    q.changed = true
    return 1
end

-- Cancel, delete or kill a lane's payloads: waiting and gathering ones now, running ones when their run has ended.
local function ask(lane, place, worker)
    local gathers, mine = place ~= 'running' or lane.next_due > 0, lane
    if place == 'running' then
        -- Gathering payloads have no attempts yet, and have waited since `next_since`.
        mine = {id = lane.id, lane = lane.lane, task = lane.task, attempt = 0, enqueued = lane.next_since, anew = true}
    end
    if gathers and action == 'kill' then
        bury(mine, payloads(WAITS .. lane.lane, BODIES .. lane.lane, 0), KILLED, mine.attempt)
    elseif gathers and action == 'cancel' then
        count('cancelled', call('ZCARD', WAITS .. lane.lane))
        remember(run_of(mine), 'cancelled')
    end
    if place ~= 'running' then
        take_out(lane, place)
        remove_lane(lane)
        return 1
    end
    if gathers then
        drop_side(WAITS .. lane.lane, BODIES .. lane.lane)
        lane.next_due, lane.next_since = 0, 0
        write_lane(lane)
    end
    return mark(lane, worker)
end

local function act_on_lane(job, place, worker)
    if place == 'dead' then
        if action == 'retry' and band(job.flags, F_PAYLOAD) ~= 0 then
            return replay(job)
        end
        return actions[action](job, place)
    end
    local lane = open_lane(job.id, job.record)
    if not lane then
        return 0
    elseif action == 'retry' then
        if place ~= 'waiting' or lane.due <= q.now then
            return 0
        end
        move_due(lane, place, q.now, false)
        return 1
    elseif action == 'reschedule' then
        if place ~= 'waiting' then
            return 0
        end
        move_due(lane, place, math.max(at, q.now + delay), call('ZSCORE', RETRY, lane.id))
        return 1
    end
    return ask(lane, place, worker)
end

-- -- all jobs ------------------------------------------------------------------------------------------------------

local answers = {}
for n = 6, #ARGV do
    local id = ARGV[n]
    local record = call('HGET', JOB, id)
    local job = open(id, record)
    local answer = -1
    if job then
        local place, worker = where(job)
        if not fits(job, place) then
            answer = 0
        elseif books[B_KIND] == 'lanes' then
            answer = act_on_lane(job, place, worker)
        elseif place == 'running' and (action == 'cancel' or action == 'delete' or action == 'kill') then
            answer = mark(job, worker)
        else
            answer = actions[action](job, place)
        end
    elseif record then
        -- A record that is not a job's can only be deleted.
        answer = 0
        if action == 'delete' and not next(which) then
            call('ZREM', DEAD, id)
            leave({id}, 1, 1)
            answer = 1
        end
    elseif (tonumber(call('ZSCORE', KEPT, id) or 0)) > now then
        -- A finished job can only be deleted.
        answer = action == 'delete' and forget_finished({id}, 1, 1) or 0
    end
    answers[#answers + 1] = answer
end
finish((standing()))
return answers
