-- _collect.lua: an exchange of a collector's queue: its units are lanes, and a claim is a run of several. Stands behind
-- _lanes.lua and _settle.lua.
--
-- A claimed run is a list: why its last claim was lost (or ''), then four values per lane: id, record, payloads (as in
-- BODIES; false: the record is not a lane's), and the number of the payload that arrived first (0: the oldest).

local MOST_LANES = 1000
local collected, room = {}, MOST_LANES

-- -- outcomes ----------------------------------------------------------------------------------------------------

local lane_ways = {
    done = function(lane, run)
        q.processed = (q.processed or 0) + go_on(lane)
        keep_run(run)
    end,
    asked = lane_ends_as_asked,
    cancelled = cancel_run,
    dead = function(lane, error, digests)
        local named = {}
        for n, digest in ipairs(digests or {}) do
            named[n] = digest:gsub('%x%x', function(two) return string.char(tonumber(two, 16)) end)
        end
        lane_dies(lane, error, named)
    end,
    again = lane_waits_again,
}

-- Settle all outcomes; return the numbers of the refused successes, and those of the other refused outcomes.
local function settle_collected(others)
    local items, texts, number = {}, each_run(ARGV[7]), tonumber(ARGV[6])
    for n = 1, number do
        items[n] = {ARGV[7 + n], ARGV[7 + number + n], 'done', 0, '', texts[n]}
    end
    return settle_each(items, open_lane, lane_ways), settle_each(others, open_lane, lane_ways)
end

-- -- claims ------------------------------------------------------------------------------------------------------

-- Move a lane's payloads to its run: all of them, or only the oldest `most`. Then the others gather, and are due now.
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
    lane.next_due, lane.next_since = q.now, lane.enqueued
    write_lane(lane)
    return list
end

-- Note that the worker holds a unit of a run.
local function take_unit(run, id, record, given, first)
    call('HSET', RUNNING .. ARGV[2], id, string.format('%d', q.token + TOKEN_STEP))
    local at = #run
    run[at + 1], run[at + 2], run[at + 3], run[at + 4] = id, record, given, first
end

local function take_lane(run, lane, most)
    local record = lane.record
    call('ZREM', due_key(lane.rank), lane.stands)
    local list = take_payloads(lane, most)
    if #list == 0 then
        remove_lane(lane)
        return
    end
    if lane.attempt > 0 then
        call('ZREM', RETRY, lane.id)
    end
    local given, first = {}, 1
    for n, payload in ipairs(list) do
        given[n] = payload[5]
        first = payload[3] < list[first][3] and n or first
    end
    take_unit(run, lane.id, record, given, first - 1)
end

-- Claim lanes as one run; return false if none of them had payloads. A record that is not a lane's is claimed too: its worker
-- reports it, and settles it as dead.
local function take(lanes, most)
    local run = {call('HGET', LOST, lanes[1].id) or ''}
    if lanes[1].unread then
        call('ZREM', due_key(100), lanes[1].stands)
        take_unit(run, lanes[1].id, lanes[1].unread, false, 0)
    else
        for _, lane in ipairs(lanes) do
            take_lane(run, lane, most)
        end
    end
    q.changed = true
    if #run == 1 then
        return false
    end
    q.claimed, q.token = q.claimed + 1, q.token + TOKEN_STEP
    collected[q.claimed] = run
    return true
end

local function due_lanes(number)
    local list, gone = {}, false
    for _, stands in ipairs(call('ZRANGEBYSCORE', due_key(100), '-inf', q.now_text, 'LIMIT', 0, number)) do
        local id = id_of(stands)
        local record = call('HGET', JOB, id)
        local lane = open_lane(id, record) or record and {id = id, unread = record}
        if lane then
            lane.stands = stands
            list[#list + 1] = lane
        else
            call('ZREM', due_key(100), stands)
            gone, q.changed = true, true
        end
    end
    return list, gone
end

-- Return whether two lanes may run together: they have one task, both records can be read, and neither's last claim was lost.
local function join(last, lane)
    return not lane.unread and lane.task == last.task and band(lane.flags, F_LOST) == 0 and band(last.flags, F_LOST) == 0
end

-- Claim up to `most` runs, of up to `width` lanes with up to `portion` payloads each.
local function collect(most, width, portion)
    local done = 0
    while done < most and room > 0 do
        local list, gone = due_lanes(math.min((most - done) * width, room))
        if #list == 0 and not gone then
            return
        end
        local run = {}
        for n = 1, #list + 1 do
            local lane, last = list[n], run[#run]
            if last and not (lane and #run < width and join(last, lane)) then
                if done == most then
                    return
                end
                done = done + (take(run, portion) and 1 or 0)
                room = room - #run
                run = {}
            end
            run[#run + 1] = lane
        end
    end
end

local function claim_lanes(most, steps)
    steps = steps and steps[1] and steps or {most, 1, 0}
    for n = 1, #steps, 3 do
        collect(steps[n], math.max(steps[n + 1], 1), steps[n + 2])
    end
    return collected
end
