-- exchange.lua: write outcomes, then claim jobs or lanes, in one queue. This is the only script that claims.
-- uses   clock queue standing step claims
-- makes  jobs: record jobs finished settle meet
-- makes  walk: walk
-- makes  collector: record jobs finished lanes settle collect
-- KEYS  1 the queue's base
-- ARGV  1 the time or ''   2 worker   3 how many to claim   4 tokens must be greater than this
--       5 rare arguments: '' or a msgpack list of three lists:
--         how lanes of a collector are claimed: how many runs, lanes each, payloads each, …
--         outcomes other than success, a list each: id, token, outcome, after, error, run up to the outcome, and the effect of
--         death: whether it halts the lane, or of a collector's lane which payloads die, as digests; and how it is kept
--         successes that are kept: see `keep_finished`
--       6 how many successes   7 their runs, JSON with a comma and a newline between
--       then their ids, their tokens, and if one has a lane, for each '' or a colon and its lane
-- returns how many are ready, whether the queue is paused, microseconds until the next is due (-1: none), the first new token, the
--         ids of the claims, their records; and if there is any of it: how many are dead (-1: as before), the refused successes by
--         number, other refused outcomes by number, words of lost claims (id, word, …), and the claimed runs of a collector
--         (_collect.lua)
--
-- Most exchanges settle successes and claim plain jobs. The code for these is inline here, so that no group of functions is
-- created.

local byte, sub, format = string.byte, string.sub, string.format
local most, successes, collects, paused = tonumber(ARGV[3]), tonumber(ARGV[6]), books[B_KIND] == 'lanes', books[B_PAUSED]
local rare = ARGV[5] ~= '' and cmsgpack.unpack(ARGV[5])
if books[B_MOVED] and most > 0 and successes == 0 and not (rare and rare[2][1]) then
    return redis.error_reply(MOVED_REPLY .. books[B_MOVED])  -- an exchange that brings outcomes goes on, and settles them
end
local running, claims, settled = RUNNING .. ARGV[2], most > 0 and not paused and not books[B_MOVED], false
local first_token, claimed, ids, records, collected = token + TOKEN_STEP, 0, nil, nil, nil
local done, runs, refused, refused_others = 0, nil, nil, nil
local handed, handed_due, handed_record  -- the next job of a lane

-- -- outcomes ----------------------------------------------------------------------------------------------------

if collects then
    refused, refused_others = need('collector').settle_collected(rare and rare[2] or {})
elseif successes > 0 then
    local last, tokens, holds_all = 7 + successes, nil, false
    if successes == 1 then
        holds_all = call('HGET', running, ARGV[8]) == ARGV[9]
    elseif successes <= 1000 then
        tokens, holds_all = call('HMGET', running, unpack(ARGV, 8, last)), true
        for n = 1, successes do
            if tokens[n] ~= ARGV[last + n] then
                holds_all = false
                break
            end
        end
    end
    -- The worker holds all of them: if fewer fields are deleted than there are successes, one comes twice.
    if holds_all and call('HDEL', running, unpack(ARGV, 8, last)) == successes then
        done, runs = successes, ARGV[7]
        if rare and rare[3][1] then
            need('jobs').keep_finished(rare[3], ARGV[2])
        end
        local lanes = #ARGV > last + successes and ARGV
        handed, handed_due, handed_record = leave(ARGV, 8, last, lanes, last + successes + 1, claims and successes == 1)
    else
        done, runs, refused = need('jobs').settle_some(successes, tokens, rare and rare[3] or {})
    end
    settled = done > 0
end
if rare and not collects then
    refused_others = need('jobs').settle_others(rare[2])
end
settled = settled or q.settled

-- -- claims ------------------------------------------------------------------------------------------------------

local none_ready, next_due = false, nil
if handed then
    -- Claim it now if no other job is ready; otherwise put it into the index of waiting jobs.
    next_due = tonumber(call('ZRANGE', DUE .. '0', '0', '0', 'WITHSCORES')[2])
    none_ready = q.ranks == '' and (not next_due or next_due > now)
    if not none_ready then
        call('ZADD', DUE .. '0', handed_due, handed)
        handed = nil
    end
end
if collects then
    if claims then
        q.token, q.claimed = token, 0
        collected = need('collector').claim_lanes(most, rare and rare[1])
        token, claimed = q.token, q.claimed
    end
elseif claims then
    local due_keys = q.ranks ~= '' and need('jobs').due_keys()
    for n = 1, due_keys and #due_keys or 1 do
        local due_key, more, passed = due_keys and due_keys[n] or DUE .. '0', true, q.passed or 0
        while more and claimed < most and passed < MOST_PASSED do
            local met, found, taken, held, length, portion  -- the first `taken` of the jobs in `met` are claimed
            if handed then
                token, more = token + TOKEN_STEP, false
                met, found, taken, length = {sub(handed, E_ID)}, {handed_record}, 1, 1
                held = {met[1], format('%d', token)}
            else
                local size = math.min(most - claimed + 2 * passed, 1000)  -- portions grow if many jobs were passed over
                met = call('ZRANGEBYSCORE', due_key, '-inf', q.now_text, 'LIMIT', '0', size)
                if not met[1] then
                    break
                end
                for n = 1, #met do
                    local entry = met[n]
                    met[n] = sub(entry, byte(entry) == 255 and E_ID or E_POSTPONED_ID)
                end
                found, taken, held, length = call('HMGET', JOB, unpack(met)), 0, {}, #met
                local room, gone, full = most - claimed, 0, false
                while gone < length and taken < room and not full do
                    gone = gone + 1
                    local id, record, takes = met[gone], found[gone], false
                    if record then
                        local flags, _, rules = byte(record, 1, 3)
                        takes = flags == PLAIN and rules == 0
                    end
                    if not takes then
                        portion = portion or need('walk').look_ahead(found, gone)
                        takes = need('walk').meet(portion, gone, id, record)
                        full = q.passed >= MOST_PASSED or portion.expired
                    end
                    if takes then
                        taken, token = taken + 1, token + TOKEN_STEP
                        held[2 * taken - 1], held[2 * taken] = id, format('%d', token)
                        met[taken], found[taken] = id, record
                    end
                end
                q.changed = true
                -- Take all jobs that were met out of the index: they are its first. This may be the script's first write, and
                -- must be one that a server without free memory accepts, so that workers can still claim jobs there.
                call('ZREMRANGEBYRANK', due_key, '0', gone - 1)
                more = length == size or portion and portion.expired
            end
            if taken > 0 then
                -- A server stores a small hash as a list (listpack), which it searches from the beginning and copies to grow. A
                -- value of more than 64 bytes turns the list into a hash table for good. So for many claims at once such a value
                -- is written first, and deleted afterwards.
                local wide = taken >= 10 and claimed == 0 and not settled
                if wide then
                    call('HSET', running, '', string.rep(' ', 65))
                end
                call('HSET', running, unpack(held))
                if wide then
                    call('HDEL', running, '')
                end
                if claimed == 0 and taken == length then
                    ids, records = met, found
                else
                    ids, records = ids or {}, records or {}
                    for n = 1, taken do
                        ids[claimed + n], records[claimed + n] = met[n], found[n]
                    end
                end
                claimed = claimed + taken
            end
            if portion then
                need('walk').write_portion(portion)
                passed = q.passed
            end
        end
    end
    if q.ranks ~= '' and claimed > 0 then
        need('jobs').clear_ranks()
    end
end
if claimed > 0 then
    if not settled then
        call('SADD', HOLDERS, ARGV[2])
    end
elseif q.changed and call('EXISTS', running) == 0 then
    call('SREM', HOLDERS, ARGV[2])
end

-- -- the depth ---------------------------------------------------------------------------------------------------

if refused or refused_others then
    q.changed = true
    call('HINCRBY', META, 'refused', (refused and #refused or 0) + (refused_others and #refused_others or 0))
end
local left, due_in = 0, next_due and next_due - now or -1
if not none_ready then
    left, due_in = standing()
end
finish(left, claimed > 0 and (token - number) / TOKEN_STEP, done, runs)
local died = q.counts and q.counts.dead
local answer = {left, paused and 1 or 0, due_in, first_token, ids or {}, records or {}}
if refused or refused_others or died or q.words or collected then
    answer[7] = died and call('ZCARD', DEAD) + call('ZCARD', HALTED) or -1
    answer[8], answer[9], answer[10], answer[11] = refused or {}, refused_others or {}, q.words or {}, collected or {}
end
return answer
