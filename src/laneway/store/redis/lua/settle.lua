-- settle.lua: what most exchanges that claim nothing bring: successes of jobs that have no lane and are still the worker's.
-- Whatever else there may be is left to exchange.lua, which needs several times as long.
-- uses  clock load
-- KEYS  1 the queue's base
-- ARGV  1 the time or ''   2 worker   3 their runs, with commas between   then the ids, none of them twice, then the tokens
-- returns as load.lua; -4 if it is not such a case, and then nothing has happened

local number = (#ARGV - 3) / 2
local running = RUNNING .. ARGV[2]
local books = call('HMGET', META, 'now', 'ranks', 'paused', 'kind', 'processed', 'runs')
local kept = (tonumber(books[6]) or 0) + number
if books[4] == 'lanes' or kept > 1500 then
    return -4  -- there are runs to be forgotten
end
local tokens = call('HMGET', running, unpack(ARGV, 4, 3 + number))
for n = 1, number do
    if tokens[n] ~= ARGV[3 + number + n] then
        return -4
    end
end
local now = clock(ARGV[1], books[1])
call('HDEL', running, unpack(ARGV, 4, 3 + number))
call('HDEL', JOB, unpack(ARGV, 4, 3 + number))
if call('EXISTS', ERRORS, NOTES, LOST, MARKS) > 0 then
    for _, side in ipairs({ERRORS, NOTES, LOST, MARKS}) do
        call('HDEL', side, unpack(ARGV, 4, 3 + number))
    end
end
if call('EXISTS', running) == 0 then
    call('SREM', HOLDERS, ARGV[2])
end
call('RPUSH', RECENT, struct.pack('>I8I4', now, number) .. ARGV[3])
call('HSET', META, 'now', now, 'processed', (tonumber(books[5]) or 0) + number, 'runs', kept)
return standing(now, books[2], books[3])
