-- plain.lua: what most exchanges bring: successes of jobs that have no lane and are still the worker's, and claims of jobs that
-- are as plain. Whatever else there may be is left to exchange.lua, which needs several times as long.
-- uses  clock recent load
-- KEYS  1 the queue's base
-- ARGV  1 the time or ''   2 worker   3 how many to claim   4 tokens must be greater than this   5 the runs of the successes, with
--       commas between; then their ids, none twice, then their tokens
-- returns as load.lua, then the first new token and a list of the claims: id, record, …
--         -4 if it is not such a case, and then nothing has happened

local most, number = tonumber(ARGV[3]), (#ARGV - 5) / 2
local running = RUNNING .. ARGV[2]
local books = call('HMGET', META, 'now', 'ranks', 'paused', 'kind', 'processed', 'runs', 'token', 'number')
if books[4] == 'lanes' or most > 0 and (books[3] or (books[2] or '') ~= '') then
    return -4
end
if number > 0 then
    local tokens = call('HMGET', running, unpack(ARGV, 6, 5 + number))
    for n = 1, number do
        if tokens[n] ~= ARGV[5 + number + n] then
            return -4
        end
    end
end
local now = clock(ARGV[1], books[1])

local entries = most > 0 and call('ZRANGEBYSCORE', DUE .. 0, '-inf', now, 'LIMIT', 0, most) or {}
local claimed, held, claims, format = #entries, {}, {}, string.format
local counter = math.max(tonumber(books[7]) or 0, math.floor(tonumber(ARGV[4]) / 4096) + 1)
local last = tonumber(books[8]) or 0  -- tokens carry the queue's number in their last twelve bits
if claimed > 0 then
    local ids = {}
    for n = 1, claimed do
        ids[n] = entries[n]:sub(9)
    end
    local records = call('HMGET', JOB, unpack(ids))
    for n = 1, claimed do
        local id, record = ids[n], records[n]
        -- It must be fresh, with neither lane nor key nor end.
        if not record or record:byte(1) ~= 128 or #record < 20 then
            return -4
        end
        held[2 * n - 1], held[2 * n] = id, format('%d', (counter + n) * 4096 + last)
        claims[2 * n - 1], claims[2 * n] = id, record
    end
end

local written = {'now', now}
if number > 0 then
    call('HDEL', running, unpack(ARGV, 6, 5 + number))
    call('HDEL', JOB, unpack(ARGV, 6, 5 + number))
    if call('EXISTS', ERRORS, NOTES, LOST, MARKS) > 0 then
        for _, side in ipairs({ERRORS, NOTES, LOST, MARKS}) do
            call('HDEL', side, unpack(ARGV, 6, 5 + number))
        end
    end
    written[3], written[4] = 'processed', (tonumber(books[5]) or 0) + number
    written[5], written[6] = 'runs', keep_runs(now, books[6], number, ARGV[5])
end
if claimed > 0 then
    call('ZREMRANGEBYRANK', DUE .. 0, 0, claimed - 1)  -- the first write if there is no other: one that needs no memory
    hold(running, held, number == 0)
    written[#written + 1], written[#written + 2] = 'token', counter + claimed
end
if number > 0 and claimed == 0 and call('EXISTS', running) == 0 then
    call('SREM', HOLDERS, ARGV[2])
elseif number == 0 and claimed > 0 then
    call('SADD', HOLDERS, ARGV[2])
end
if number + claimed > 0 then
    call('HSET', META, unpack(written))
end
local answer = standing(now, books[2], books[3])
if claimed > 0 and answer[1] > 0 then
    ring()
end
answer[4], answer[5] = (counter + 1) * 4096 + last, claims
return answer
