-- exchange.lua: write what runs meant, then claim what may run, of one queue. Here alone jobs and lanes of a collector are claimed.
-- uses   clock queue commands standing step claims
-- makes  jobs: record jobs settle meet
-- makes  walk: walk
-- makes  collector: record jobs lanes settle collect
-- KEYS  1 the queue's base
-- ARGV  1 the time or ''   2 worker   3 how many to claim   4 tokens must be greater than this
--       5 of a collector, how: '' or a flat msgpack list of how many runs, lanes each, payloads each
--       6 other ends than success or '': a msgpack list of lists of id, token, outcome, after, error, run up to the outcome, and what
--         death means: whether it halts the lane, or of a collector's lane which payloads die, as digests
--       7 results or '': a flat msgpack list of id, milliseconds, microseconds, value
--       8 how many successes   9 their runs, JSON with a comma and a newline between
--       then their ids, their tokens, and if one has a lane, for each '' or a colon and its lane
-- returns how many are ready, whether the queue is paused, microseconds until the next is due (-1: none), the first new token, the ids
--         of the claims, their records; and if there is any of it: how many are dead (-1: as before), the refused successes by number,
--         other refused ends by number, words of lost claims (id, word, …), and the runs that were claimed of a collector (_collect.lua)
--
-- Most exchanges bring successes, and claims of plain jobs: what they need is written out here, and `jobs()` is not made.

local most, number = tonumber(ARGV[3]), tonumber(ARGV[8])
local paused = books.paused
local ids, records = {}, {}
local refused, refused_others, kept, batches
may_hand = most > 0 and not paused and ranks == ''

-- -- what has ended ----------------------------------------------------------------------------------------------

if books.collects then
    refused, refused_others = collector().settle_lanes()
elseif number > 0 then
    local last, tokens, holds_all = 9 + number, nil, false
    if number <= 1000 then
        tokens, holds_all = call('HMGET', running, unpack(ARGV, 10, last)), true
        for n = 1, number do
            if tokens[n] ~= ARGV[last + n] then
                holds_all = false
                break
            end
        end
    end
    local text, lanes = ARGV[9], #ARGV > last + number and ARGV
    -- What the worker holds and does not go as often stands twice.
    if holds_all and call('HDEL', running, unpack(ARGV, 10, last)) == number then
        leave(ARGV, 10, last, lanes, last + number + 1)
    else
        local left
        left, lanes, text, refused, kept = jobs().sift(number, tokens)
        number = #left
        if number > 0 then
            leave(left, 1, number, lanes, 1)
        end
    end
    if number > 0 then
        settled, counts.processed, run_count, runs[1] = true, number, number, text
    end
    if ARGV[7] ~= '' then
        jobs().keep_results(ARGV[7], kept)
    end
end
if ARGV[6] ~= '' and not books.collects then
    refused_others = jobs().settle_others(ARGV[6])
end

-- -- what is claimed ---------------------------------------------------------------------------------------------

local none_ready, next_due  -- what is known of it
if handed then
    -- It is claimed at once if nothing else is ready, else it waits like all others.
    local head = ranks == '' and call('ZRANGE', DUE .. '0', 0, 0, 'WITHSCORES')
    next_due = head and tonumber(head[2])
    if head and (not next_due or next_due > now) then
        none_ready = true
    else
        call('ZADD', DUE .. '0', handed.due, handed.entry)
        handed = nil
    end
end
if books.collects then
    if most > 0 and not paused then
        batches = collector().claim_lanes(most)
    end
elseif most > 0 and not paused then
    for _, due_key in ipairs(ranks == '' and {DUE .. '0'} or jobs().due_keys()) do
        local more = true
        while more and claimed < most and passed < MOST_PASSED do
            local met, found, size
            if handed then
                met, found, size = {handed.id}, {handed.record}, 2
            else
                size = math.min(most - claimed + 2 * passed, 1000)  -- where many are passed over, portions grow
                met = call('ZRANGEBYSCORE', due_key, '-inf', now_text, 'LIMIT', 0, size)
                if not met[1] then
                    break
                end
                for n = 1, #met do
                    local entry = met[n]
                    met[n] = sub(entry, byte(entry) == 255 and 9 or 16)
                end
                found = call('HMGET', JOB, unpack(met))
            end
            local length, gone, before, held, portion = #met, 0, claimed, {}, nil
            while gone < length and claimed < most and passed < MOST_PASSED and not (portion and portion.expired) do
                gone = gone + 1
                local id, record = met[gone], found[gone]
                local flags, _, rules = byte(record or '', 1, 3)
                local takes = handed or flags == PLAIN and rules == 0 and #record >= 20
                if not takes then
                    portion = portion or walk().look_ahead(found, gone)
                    takes = walk().meet(portion, gone, id, record)
                end
                if takes then
                    claimed, token = claimed + 1, token + TOKEN_STEP
                    ids[claimed], records[claimed] = id, record
                    held[2 * (claimed - before) - 1], held[2 * (claimed - before)] = id, format('%d', token)
                end
            end
            changed = true
            if not handed then
                -- All that were met leave, and they stand in front. If this is the first write, it is one that needs no memory: a
                -- server that is full refuses others, and work must get out all the same.
                call('ZREMRANGEBYRANK', due_key, 0, gone - 1)
            end
            if held[1] then
                -- A small hash is a list inside, which is searched from its beginning and copied to grow. A value that is too long for
                -- that makes it a table, and it stays one: a worker that has many at once gets a table to begin with.
                local wide = claimed - before >= 10 and before == 0 and not settled
                if wide then
                    call('HSET', running, '', string.rep(' ', 65))
                end
                call('HSET', running, unpack(held))
                if wide then
                    call('HDEL', running, '')
                end
            end
            if portion then
                walk().write_portion(portion)
            end
            more = length == size or portion and portion.expired
            handed = nil
        end
        if claimed == most or passed >= MOST_PASSED then
            break
        end
    end
    if ranks ~= '' and claimed > 0 then
        jobs().clear_ranks()
    end
end
if claimed > 0 then
    if not settled then
        call('SADD', HOLDERS, ARGV[2])
    end
elseif changed and call('EXISTS', running) == 0 then
    call('SREM', HOLDERS, ARGV[2])
end

-- -- how it stands -----------------------------------------------------------------------------------------------

if refused or refused_others then
    counts.refused = (refused and #refused or 0) + (refused_others and #refused_others or 0)
    changed = true
end
local left, due_in
if none_ready then
    left, due_in = 0, next_due and next_due - now or -1
else
    left, due_in = standing()
end
finish(left, claimed > 0 and (token - (books.number or 0)) / TOKEN_STEP)
local answer = {left, paused and 1 or 0, due_in, first_token, ids, records}
if refused or refused_others or counts.dead or words[1] or batches then
    answer[7] = counts.dead and call('ZCARD', DEAD) + call('ZCARD', HALTED) or -1
    answer[8], answer[9], answer[10], answer[11] = refused or {}, refused_others or {}, words, batches or {}
end
return answer
