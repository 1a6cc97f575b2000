-- gather.lua: payloads of a collector's queue join their lanes, in order.
-- uses   clock queue open standing step
-- makes  jobs: record arrived jobs lanes
-- opens  jobs
-- KEYS  1 the queue's base
-- ARGV  1 the time or ''   2 the queue's number, or '' if it should have one   3 schedule, outbox or ''   4 its occurrence,
--       or its numbers (first-last)
--       then nine per payload: its lane's id, lane, task, when ('' at once, else delay@at), score or '', quiet, longest, digest,
--       body (if it has headers: followed by a byte 0 and the headers)
-- returns 0; -1 if the queue has no number, -2 if the occurrence or the first number came before, -3 if the queue has jobs

if books[B_KIND] ~= 'lanes' and call('HLEN', JOB) > 0 then
    return -3
end
if not books[B_NUMBER] and ARGV[2] == '' then
    return -1
end
if ARGV[3] ~= '' and need('first').came_before(ARGV[3], ARGV[4]) then
    return -2
end
if not books[B_NUMBER] then
    call('HSET', META, 'number', ARGV[2])
end
if books[B_KIND] ~= 'lanes' then
    call('HSET', META, 'kind', 'lanes')
end

local last_score = tonumber(call('HGET', META, 'score')) or 0
-- The smallest difference between two times, in seconds, that a double can represent until the year 2106.
local STEP = 2 ^ -21

local function later_of(due, since, quiet, longest)
    local till = q.now + quiet
    return math.max(due, longest > 0 and math.min(till, since + longest) or till)
end

-- Set when a lane is due that got another payload.
local function put_off(lane, when, quiet, longest)
    local given = q.now
    if when ~= '' then
        local delay, at = when:match('^(%d+)@(%d+)$')
        given = math.max(q.now + tonumber(delay), tonumber(at))
        quiet = 0
    end
    if lane.runs then
        if lane.next_due == 0 then
            lane.next_due, lane.next_since = given, q.now
        end
        if quiet > 0 then
            lane.next_due = later_of(lane.next_due, lane.next_since, quiet, longest)
        end
    else
        if not lane.due then
            lane.due = given
        end
        if quiet > 0 and lane.attempt == 0 then
            lane.due = later_of(lane.due, lane.enqueued, quiet, longest)
        end
    end
end

local lanes, order, tasks = {}, {}, {}
for n = 5, #ARGV, 9 do
    local id = ARGV[n]
    local lane = lanes[id]
    if not lane then
        lane = open_lane(id, call('HGET', JOB, id))
        if lane then
            lane.runs = not waits(lane)
            lane.before = lane.due
            lane.stood = entry(lane)
        else
            lane = new_lane(id, ARGV[n + 1], ARGV[n + 2], nil)
            lane.is_new = true
        end
        lanes[id] = lane
        order[#order + 1] = lane
    end
    tasks[ARGV[n + 2]] = (tasks[ARGV[n + 2]] or 0) + 1
    put_off(lane, ARGV[n + 3], tonumber(ARGV[n + 5]), tonumber(ARGV[n + 6]))
    local score = tonumber(ARGV[n + 4])
    if not score then
        score = math.max(q.now / 1000000, last_score + STEP)
        last_score = score
    end
    add_payload(WAITS .. lane.lane, BODIES .. lane.lane, ARGV[n + 7], score, next_seq(), ARGV[n + 8])
end

for _, lane in ipairs(order) do
    if lane.is_new then
        lane.place = lane.due
        write_lane(lane)
        wait(lane)
    elseif lane.runs then
        write_lane(lane)
    elseif lane.due ~= lane.before then
        call('ZREM', due_key(lane.rank), lane.stood)
        write_lane(lane)
        wait(lane)
    end
end
call('HSET', META, 'score', string.format('%.17g', last_score))
count('enqueued', (#ARGV - 4) / 9)
for task, times in pairs(tasks) do
    arrive(task, times)
end
q.changed = true
if ARGV[3] ~= '' then
    need('first').has_come(ARGV[3], ARGV[4])
end
finish((standing()))
return 0
