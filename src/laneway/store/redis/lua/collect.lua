-- collect.lua: write what a collector's runs meant for their lanes, then claim due lanes for new ones.
-- uses  clock recent jobs lanes
-- KEYS  1 the queue's base
-- ARGV  1 the time or ''   2 worker   3 how many runs to claim   4 tokens must be greater than this
--       5 successes or '': a flat msgpack list of lane's id, token, lane, run
--       6 other ends or '': a msgpack list of lists of lane's id, token, outcome, after, error, run up to the outcome, digests that die
--       7 results: a collector has none   8 steps or '': a flat msgpack list of how many runs, lanes each, payloads each
-- returns what exchange.lua does, but for the claims: a list for each, of its step, its word, and four per lane: id, record, payloads
--         (body, score, …; none: what is there is no lane's record), which of them arrived first (0: the oldest);
--         -3 if the queue has jobs

if books[7] ~= 'lanes' then
    return -3
end
local worker = ARGV[2]
local running = RUNNING .. worker
local MOST_LANES = 1000

-- -- settling ----------------------------------------------------------------------------------------------------

local function held(id, token)
    return call('HGET', running, id) == token and open_lane(id) or nil
end

local function settle(lane, item)
    local outcome, after, error, run = item[3], item[4], item[5], item[6]
    local mark = mark_of(lane.id)
    if mark then
        lane_ends_as_asked(lane, mark, run)
    elseif outcome == 'cancelled' then
        cancel_run(lane, run)
    elseif outcome == 'dead' then
        local named = {}
        for n, digest in ipairs(item[7]) do
            named[n] = digest:gsub('%x%x', function(two) return string.char(tonumber(two, 16)) end)
        end
        lane_dies(lane, error, named)
        count('failed')
        remember(run, outcome)
    else
        run_ended(lane)
        if outcome == 'retrying' then
            lane.attempt = lane.attempt + 1
            add_error(lane, error)
            call('ZADD', RETRY, now + after, lane.id)
            count('failed')
            count('retried')
            remember(run, outcome)
        end
        lane_waits_again(lane, now + after)
    end
end

local refused, refused_others = {}, {}
if ARGV[5] ~= '' then
    local list = cmsgpack.unpack(ARGV[5])
    for n = 1, #list, 4 do
        local lane = held(list[n], list[n + 1])
        if lane then
            call('HDEL', running, lane.id)
            count('processed', go_on(lane))
            runs[#runs + 1] = list[n + 3]
        else
            refused[#refused + 1] = (n - 1) / 4
        end
    end
end
if ARGV[6] ~= '' then
    for n, item in ipairs(cmsgpack.unpack(ARGV[6])) do
        local record = call('HGET', running, item[1]) == item[2] and call('HGET', JOB, item[1])
        local lane = record and open_lane(item[1])
        if record then
            call('HDEL', running, item[1])
            changed = true
            if lane then
                settle(lane, item)
            else
                settle_unread(record, item)
            end
        else
            refused_others[#refused_others + 1] = n - 1
        end
    end
end
if #refused + #refused_others > 0 then
    count('refused', #refused + #refused_others)
end

-- -- claiming ----------------------------------------------------------------------------------------------------

local claims, room, claimed = {}, MOST_LANES, 0
local step_size = 4096
local counter = math.max(tonumber(books[6]) or 0, math.floor(tonumber(ARGV[4]) / step_size) + 1)
local first_token = (counter + 1) * step_size + (tonumber(books[3]) or 0)

local function token_text()
    return digits(counter * step_size + (tonumber(books[3]) or 0))
end

-- A lane's payloads are its run's: all of them, or the oldest, and then the rest gathers and is due now.
local function take_payloads(lane, most)
    local name = lane.lane
    local index, bodies, run_index, run_bodies = WAITS .. name, BODIES .. name, RUNS .. name, RUN_BODIES .. name
    if most == 0 or call('ZCARD', index) <= most then
        local list = payloads(index, bodies, 0)
        if #list > 0 then
            call('RENAME', index, run_index)
            call('RENAME', bodies, run_bodies)
        end
        return list
    end
    local list = payloads(index, bodies, most)
    for _, payload in ipairs(list) do
        drop_payload(index, bodies, payload)
        add_payload(run_index, run_bodies, unpack(payload))
    end
    lane.next_due, lane.next_since = now, lane.enqueued
    write_lane(lane)
    return list
end

-- Who claims what is no lane's record lets it die, and tells of it.
local function take_unread(lane, step)
    call('ZREM', due_key(100), lane.stands)
    call('HSET', running, lane.id, token_text())
    claims[#claims + 1] = {step, '', lane.id, lane.unread, false}
    claimed = claimed + 1
    changed = true
end

local function take(run, step, most)
    counter = counter + 1
    if run[1].unread then
        return take_unread(run[1], step)
    end
    local claim = {step, call('HGET', LOST, run[1].id) or ''}
    for _, lane in ipairs(run) do
        local before = lane.record
        call('ZREM', due_key(lane.rank), entry(lane))
        local list = take_payloads(lane, most)
        if #list == 0 then
            remove_lane(lane)
        else
            if lane.attempt > 0 then
                call('ZREM', RETRY, lane.id)
            end
            call('HSET', running, lane.id, token_text())
            local given, first = {}, 1
            for n, payload in ipairs(list) do
                given[#given + 1] = payload[4]
                given[#given + 1] = string.format('%.17g', payload[2])
                first = payload[3] < list[first][3] and n or first
            end
            claim[#claim + 1] = lane.id
            claim[#claim + 1] = before
            claim[#claim + 1] = given
            claim[#claim + 1] = first - 1
        end
    end
    changed = true
    if #claim > 2 then
        claims[#claims + 1] = claim
        claimed = claimed + 1
    else
        counter = counter - 1
    end
end

local function due_lanes(number)
    local list, gone = {}, false
    for _, found in ipairs(call('ZRANGEBYSCORE', due_key(100), '-inf', now, 'LIMIT', 0, number)) do
        local id = id_of(found)
        local lane = open_lane(id)
        local record = not lane and call('HGET', JOB, id)
        if lane or record then
            list[#list + 1] = lane or {id = id, unread = record, stands = found}
        else
            call('ZREM', due_key(100), found)
            gone, changed = true, true
        end
    end
    return list, gone
end

-- Claim up to `most` runs: lanes of one task run together, none that remembers why it was lost, and none that cannot be read.
local function collect(step, most, lanes, portion)
    local done = 0
    while done < most and room > 0 do
        local list, gone = due_lanes(math.min((most - done) * lanes, room))
        if #list == 0 and not gone then
            return
        end
        local run = {}
        for n = 1, #list + 1 do
            local lane, last = list[n], run[#run]
            local joins = lane and last and #run < lanes and not lane.unread and not last.unread and lane.task == last.task
                and band(lane.flags, F_LOST) == 0 and band(last.flags, F_LOST) == 0
            if last and not joins then
                if done == most then
                    return
                end
                take(run, step, portion)
                room = room - #run
                done = done + 1
                run = {}
            end
            run[#run + 1] = lane
        end
    end
end

local most = tonumber(ARGV[3])
if most > 0 and not paused then
    if not changed then
        -- A write that needs no memory comes first: a server that is full refuses others, and work must get out all the same.
        call('HDEL', META, '')
    end
    local steps = ARGV[8] ~= '' and cmsgpack.unpack(ARGV[8]) or {most, 1, 0}
    for n = 1, #steps, 3 do
        if steps[n] > 0 then
            collect((n - 1) / 3, steps[n], math.max(steps[n + 1], 1), steps[n + 2])
        end
    end
end
if claimed > 0 then
    call('SADD', HOLDERS, worker)
elseif changed and call('EXISTS', running) == 0 then
    call('SREM', HOLDERS, worker)
end
local left = ready()
finish(left, claimed > 0 and counter or nil)
local due_in = left == 0 and not paused and next_due() or -1
local dead = counts.dead and call('ZCARD', DEAD) or -1
return {left, paused and 1 or 0, due_in, dead, first_token, refused, refused_others, claims, {}}
