-- _settle.lua: settle outcomes other than success, and successes that need more than the code in exchange.lua. Stands behind
-- _claims.lua, _jobs.lua and _finished.lua.

-- Settle a run of a job whose record cannot be read: with outcome 'dead' the job dies, and the record is kept as its body. With
-- any other outcome it waits to be claimed again.
local function settle_unread(record, item)
    local id, outcome, error, run = item[1], item[3], item[5], item[6]
    if outcome ~= 'dead' then
        wait_unread(id)
        return
    end
    local job = {id = id, flags = F_NO_END, rank = 100, rules = 0, attempt = 0, seq = next_seq()}
    job.enqueued, job.place, job.due = q.now, q.now, q.now
    job.task, job.record, job.texts_at, job.body_at = '', '\0\0' .. record, 1, 3
    die(job, error, true, false)
    count('failed')
    remember(run, outcome)
    -- The record does not say which lane it is in, so look whether it holds one.
    local lanes = call('HGETALL', LANES)
    for n = 1, #lanes, 2 do
        if lanes[n + 1] == id then
            let_out(lanes[n])
        end
    end
end

-- Write the outcome of a unit. `ways`: the functions that differ between a job and a lane of a collector. `item`: see
-- exchange.lua.
local function settle(unit, item, ways)
    local outcome, after, error, run = item[3], item[4], item[5], item[6]
    local mark = outcome ~= 'done' and mark_of(unit.id)
    if outcome == 'done' then
        ways.done(unit, run)
    elseif mark then
        if mark == 'cancel' and item[8][1] then
            keep_finished(item[8], ARGV[2])
        end
        ways.asked(unit, mark, run)
    elseif outcome == 'cancelled' then
        if item[8][1] then
            keep_finished(item[8], ARGV[2])
        end
        ways.cancelled(unit, run)
    elseif outcome == 'dead' then
        ways.dead(unit, error, item[7])
        count('failed')
        remember(run, outcome)
    else
        unit.flags = bor(band(unit.flags, bnot(F_LOST)), F_RAN)
        call('HDEL', LOST, unit.id)
        if outcome == 'retrying' then
            unit.attempt = unit.attempt + 1
            add_error(unit, error)
            call('ZADD', RETRY, q.now + after, unit.id)
            count('failed')
            count('retried')
            remember(run, outcome)
        end
        ways.again(unit, q.now + after)
    end
end

-- Settle outcomes one by one; return the numbers of those whose claims the worker does not hold, or nil if it holds all.
local function settle_each(items, open_unit, ways)
    local refused
    for n, item in ipairs(items) do
        local id = item[1]
        local record = call('HGET', RUNNING .. ARGV[2], id) == item[2] and call('HGET', JOB, id)
        if record then
            call('HDEL', RUNNING .. ARGV[2], id)
            q.changed, q.settled = true, true
            local unit = open_unit(id, record)
            if unit then
                settle(unit, item, ways)
            else
                settle_unread(record, item)
            end
        else
            refused = refused or {}
            refused[#refused + 1] = n - 1
        end
    end
    return refused
end

local job_ways = {
    asked = end_as_asked,
    cancelled = function(job, run) remove(job, 'cancelled', run) end,
    dead = function(job, error, halts) die(job, error, true, halts) end,
    again = function(job, due)
        job.due = due
        write(job)
        wait(job)
    end,
}

local function settle_others(items)
    return settle_each(items, open, job_ways)
end

-- Split the joined runs of successes into a list: see exchange.lua.
local function each_run(joined)
    local at, list = 1, {}
    for n = 1, tonumber(ARGV[6]) do
        local stop = joined:find(',\n', at, true) or #joined + 1
        list[n] = joined:sub(at, stop - 1)
        at = stop + 2
    end
    return list
end

-- Settle successes if the worker does not hold all their claims, if one comes twice, or if they are more than 1,000. `tokens`:
-- the tokens that the worker holds for these ids, if the caller has read them; `records`: the records to keep, see keep_finished.
-- Return how many were settled, their runs, and the numbers of those that were refused (nil: none).
local function settle_some(number, tokens, records)
    local texts, ids, lanes, kept, refused, seen = each_run(ARGV[7]), {}, {}, {}, nil, {}
    for n = 1, number do
        local id = ARGV[7 + n]
        local held = tokens and tokens[n] or not tokens and call('HGET', RUNNING .. ARGV[2], id)
        if held == ARGV[7 + number + n] and not seen[id] then
            local at = #ids + 1
            seen[id], ids[at], lanes[at], kept[at] = true, id, ARGV[7 + 2 * number + n] or '', texts[n]
        else
            refused = refused or {}
            refused[#refused + 1] = n - 1
        end
    end
    if records[1] then
        keep_finished(records, ARGV[2], seen)
    end
    for first = 1, #ids, 1000 do
        local last = math.min(first + 999, #ids)
        call('HDEL', RUNNING .. ARGV[2], unpack(ids, first, last))
        leave(ids, first, last, lanes, first)
    end
    return #ids, ids[1] and table.concat(kept, ',\n'), refused
end
