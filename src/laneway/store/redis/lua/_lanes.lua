-- _lanes.lua: a collector's lanes and payloads: how they are read and written, wait, leave and die. Stands behind _jobs.lua.
--
-- A lane is stored as a job of its queue: it waits, runs and is counted as one job. Its body says when the payloads that gather
-- during its run are due, and since when they gather. Its payloads are on two sides: those that wait or gather (WAITS), and those
-- of the run (RUNS). When a run has ended, its side is deleted; if the run is to be repeated, the two sides are joined. A lane
-- without payloads is deleted. A dead payload is stored as a job too: its body has its score, the id of its lane, and the
-- payload.
--
-- A payload's headers, if it has any, are stored behind its body and a byte 0: they move with the payload, and are deleted when
-- it dies.

-- Return a lane read from its record; nil if the record is not a lane's.
local function open_lane(id, record)
    local lane = open(id, record)
    if not lane or not lane.lane or band(lane.flags, F_PAYLOAD) ~= 0 then
        return nil
    end
    lane.next_due, lane.next_since = 0, 0
    if #record - lane.body_at >= 15 then
        lane.next_due, lane.next_since = struct.unpack('>I8I8', record, lane.body_at)
    end
    return lane
end

local function set_body(job, body)
    job.record = job.record:sub(1, job.body_at - 1) .. body
    write(job)
end

local function write_lane(lane)
    set_body(lane, lane.next_due > 0 and struct.pack('>I8I8', lane.next_due, lane.next_since) or '')
end

local function with_texts(job)
    job.record = struct.pack('>I2c0', #job.lane, job.lane) .. struct.pack('>I2c0', #job.task, job.task)
    job.texts_at, job.body_at = 1, #job.record + 1
    return job
end

local function new_lane(id, lane, task, due)
    return with_texts({
        id = id, lane = lane, task = task, flags = F_LANE, rank = 100, rules = 0, attempt = 0, seq = next_seq(), enqueued = q.now,
        place = due, due = due, next_due = 0, next_since = 0,
    })
end

local function waits(lane)
    return call('ZSCORE', due_key(lane.rank), entry(lane)) and true or false
end

-- -- payloads ----------------------------------------------------------------------------------------------------

local MOST_HEADERS = 4000

-- Return a payload's body with the headers of this payload and of the equal one that is stored (`known`), as core/headers.py
-- joins them: each line once, those of the payload that arrived earlier first, up to MOST_HEADERS bytes.
local function with_headers(known, body, known_is_earlier)
    local theirs, mine = known:find('\0', PAYLOAD_SIZE + 1, true), body:find('\0', 1, true)
    if not theirs then
        return body
    elseif not mine then
        return known:sub(PAYLOAD_SIZE + 1)
    end
    local earlier, later = known:sub(theirs + 1), body:sub(mine + 1)
    if not known_is_earlier then
        earlier, later = later, earlier
    end
    local lines, seen, size = {earlier}, {}, #earlier
    for line in earlier:gmatch('[^\n]+') do
        seen[line] = true
    end
    for line in later:gmatch('[^\n]+') do
        local longer = size + 1 + #line
        if not seen[line] and longer <= MOST_HEADERS then
            lines[#lines + 1], seen[line], size = line, true, longer
        end
    end
    return body:sub(1, mine) .. table.concat(lines, '\n')
end

-- Add a payload. If an equal one is there, the two become one, with the larger score, the earlier arrival and the headers of
-- both.
local function add_payload(index, bodies, digest, score, arrival, body)
    local known = call('HGET', bodies, digest)
    if known then
        count('merged')
        local before, had = struct.unpack(PAYLOAD_HEAD, known)
        body = with_headers(known, body, before <= arrival)
        if had >= score and before <= arrival and #body == #known - PAYLOAD_SIZE then
            return
        elseif before > arrival then
            call('ZREM', index, struct.pack('>I7', before) .. digest)
        end
        score, arrival = math.max(score, had), math.min(arrival, before)
    end
    call('ZADD', index, score, struct.pack('>I7', arrival) .. digest)
    call('HSET', bodies, digest, struct.pack(PAYLOAD_HEAD, arrival, score) .. body)
end

-- Return the payloads of one side, the oldest first; each is a list of digest, score, arrival, body with headers, and its stored
-- bytes.
local function payloads(index, bodies, most)
    local list = {}
    local entries = call('ZRANGE', index, 0, most - 1)
    for first = 1, #entries, 1000 do
        local digests = {}
        for n = first, math.min(first + 999, #entries) do
            digests[#digests + 1] = entries[n]:sub(8)
        end
        local found = call('HMGET', bodies, unpack(digests))
        for n = 1, #digests do
            if found[n] and #found[n] >= PAYLOAD_SIZE then
                local arrival, score = struct.unpack(PAYLOAD_HEAD, found[n])
                list[#list + 1] = {digests[n], score, arrival, found[n]:sub(PAYLOAD_SIZE + 1), found[n]}
            end
        end
    end
    return list
end

local function drop_side(index, bodies)
    call('UNLINK', index, bodies)
end

local function drop_payload(index, bodies, payload)
    call('ZREM', index, struct.pack('>I7', payload[3]) .. payload[1])
    call('HDEL', bodies, payload[1])
end

-- Join a run's payloads with the gathered ones, by moving the smaller side.
local function join_sides(name)
    local index, bodies, run_index, run_bodies = WAITS .. name, BODIES .. name, RUNS .. name, RUN_BODIES .. name
    local gathered, ran = call('ZCARD', index), call('ZCARD', run_index)
    if ran == 0 then
        return
    end
    if gathered >= ran then
        for _, payload in ipairs(payloads(run_index, run_bodies, 0)) do
            add_payload(index, bodies, unpack(payload))
        end
        drop_side(run_index, run_bodies)
    else
        for _, payload in ipairs(payloads(index, bodies, 0)) do
            add_payload(run_index, run_bodies, unpack(payload))
        end
        call('RENAME', run_index, index)
        call('RENAME', run_bodies, bodies)
    end
end

local function hex(digest)
    return (digest:gsub('.', function(c) return string.format('%02x', c:byte()) end))
end

-- Keep payloads as dead ones, without their headers. The caller takes them out of the lane.
local function bury(lane, list, error, attempt)
    local stored = not lane.anew and call('HGET', ERRORS, lane.id)
    for _, payload in ipairs(list) do
        local id = 'p-' .. hex(payload[1])
        local score, known = payload[2], open(id, call('HGET', JOB, id))
        if known then
            count('merged')
        end
        local dead = known or with_texts({
            id = id, lane = lane.lane, task = lane.task, rank = 100, rules = 0, seq = next_seq(), enqueued = lane.enqueued, place = q.now,
        })
        if known and #known.record - known.body_at >= 7 then
            score = math.max(score, (struct.unpack('>d', known.record, known.body_at)))
        end
        dead.flags, dead.attempt, dead.due = F_LANE + F_NO_END + F_PAYLOAD, attempt, q.now
        set_body(dead, struct.pack('>d', score) .. struct.pack('>I2c0', #lane.id, lane.id) .. payload[4]:match('^[^%z]*'))
        call('ZADD', DEAD, q.now, id)
        if stored then
            call('HSET', ERRORS, id, stored)
        else
            call('HDEL', ERRORS, id)
        end
        add_error(dead, error)
    end
    count('dead', #list)
end

-- -- a run has ended ---------------------------------------------------------------------------------------------

local function remove_lane(lane)
    leave({lane.id}, 1, 1)
    drop_side(WAITS .. lane.lane, BODIES .. lane.lane)
    drop_side(RUNS .. lane.lane, RUN_BODIES .. lane.lane)
end

-- Delete a run's payloads; the gathered ones now wait. Return the number of payloads deleted.
local function go_on(lane)
    local gone = call('ZCARD', RUNS .. lane.lane)
    if lane.next_due == 0 then
        remove_lane(lane)
        return gone
    end
    drop_side(RUNS .. lane.lane, RUN_BODIES .. lane.lane)
    leave({lane.id}, 1, 1)  -- the gathered payloads start without errors, notes and marks of this run
    lane.flags, lane.attempt = F_LANE, 0
    lane.place, lane.due, lane.enqueued = lane.next_due, lane.next_due, lane.next_since
    lane.next_due, lane.next_since = 0, 0
    write_lane(lane)
    wait(lane)
    return gone
end

-- Put a run's payloads back, together with the gathered ones: the lane waits again.
local function lane_waits_again(lane, due)
    join_sides(lane.lane)
    call('HDEL', MARKS, lane.id)
    lane.due, lane.next_due, lane.next_since = due, 0, 0
    write_lane(lane)
    wait(lane)
end

local function first_to_arrive(list)
    local first
    for _, payload in ipairs(list) do
        if not first or payload[3] < first[3] then
            first = payload
        end
    end
    return first
end

-- Let payloads of a run die: those with the given digests, or else the one that arrived first. The others wait again at once,
-- together with the gathered ones, and their attempts are counted from 0.
local function lane_dies(lane, error, named)
    local index, bodies, dying = RUNS .. lane.lane, RUN_BODIES .. lane.lane, {}
    for _, digest in ipairs(named) do
        local found = call('HGET', bodies, digest)
        if found then
            local arrival, score = struct.unpack(PAYLOAD_HEAD, found)
            dying[#dying + 1] = {digest, score, arrival, found:sub(PAYLOAD_SIZE + 1)}
            drop_payload(index, bodies, dying[#dying])
        end
    end
    if #dying == 0 then
        dying = {first_to_arrive(payloads(index, bodies, 0))}
        for _, payload in ipairs(dying) do
            drop_payload(index, bodies, payload)
        end
    end
    bury(lane, dying, error, lane.attempt + 1)
    if lane.next_due == 0 and call('EXISTS', index) == 0 then
        remove_lane(lane)
        return
    end
    call('HDEL', LOST, lane.id)
    call('HDEL', ERRORS, lane.id)
    lane.flags, lane.attempt = bor(band(lane.flags, bnot(F_LOST)), F_RAN), 0
    lane_waits_again(lane, q.now)
end

local function cancel_run(lane, run)
    remember(run or run_of(lane), 'cancelled')
    count('cancelled', go_on(lane))
end

-- End a marked run as its mark says: its payloads are not put back.
local function lane_ends_as_asked(lane, mark, run)
    if mark == 'cancel' then
        cancel_run(lane, run)
        return
    end
    if mark == 'kill' then
        bury(lane, payloads(RUNS .. lane.lane, RUN_BODIES .. lane.lane, 0), KILLED, lane.attempt)
        if run then
            remember(run, 'dead')
        end
    end
    go_on(lane)
end
