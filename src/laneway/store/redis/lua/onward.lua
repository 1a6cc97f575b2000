-- onward.lua: a lane that is worked off goes on: a success, and the next of its lane is claimed. Nothing else is ready.
-- Whatever else there may be is left to exchange.lua, which needs several times as long.
-- uses  clock recent
-- KEYS  1 the queue's base
-- ARGV  1 the time or ''   2 worker   3 tokens must be greater than this   4 id   5 token   6 lane   7 its run
-- returns as plain.lua: 0, 0, microseconds until the next is due (-1: none), the new token, a list of the claim's id and record;
--         -4 if it is not such a case, and then nothing has happened

local id, lane = ARGV[4], ARGV[6]
local running = RUNNING .. ARGV[2]
local books = call('HMGET', META, 'now', 'number', 'ranks', 'paused', 'token', 'kind', 'processed', 'runs', 'blocked')
if (books[3] or '') ~= '' or books[4] or books[6] == 'lanes' or call('HGET', running, id) ~= ARGV[5] then
    return -4
end
local head = call('ZRANGE', PARKED .. lane, 0, 0)[1]
local following = head and head:sub(9)
local record = head and call('HGET', JOB, following)
-- It must be fresh (128), in this lane (1), neither with a key nor with an end, and of no priority.
if not record or record:sub(1, 2) ~= '\129\100' or record:sub(19, 20 + #lane) ~= struct.pack('>I2', #lane) .. lane then
    return -4
end
local now = clock(ARGV[1], books[1])
local due = call('ZRANGE', DUE .. 0, 0, 0, 'WITHSCORES')[2]
local due_in = due and tonumber(due) - now or -1
if due and due_in <= 0 then
    return -4
end
call('HDEL', running, id)
call('HDEL', JOB, id)
if call('EXISTS', ERRORS, NOTES, LOST, MARKS) > 0 then
    for _, side in ipairs({ERRORS, NOTES, LOST, MARKS}) do
        call('HDEL', side, id)
    end
end
local counter = math.max(tonumber(books[5]) or 0, math.floor(tonumber(ARGV[3]) / 4096) + 1) + 1
local token = counter * 4096 + (tonumber(books[2]) or 0)
call('ZREM', PARKED .. lane, head)
call('HSET', LANES, lane, following)
call('HSET', running, following, token)
call(
    'HSET', META, 'now', now, 'processed', (tonumber(books[7]) or 0) + 1, 'runs', keep_runs(now, books[8], 1, ARGV[7]),
    'blocked', (tonumber(books[9]) or 0) - 1, 'token', counter
)
return {0, 0, due_in, token, {following, record}}
