-- load.lua: how a queue stands that an exchange neither settles in nor claims from. Writes nothing.
-- uses  clock
-- KEYS  1 the queue's base
-- ARGV  1 the time or ''
-- returns how many are ready, whether the queue is paused, microseconds until the next is due (-1: none, or some are ready)

local books = call('HMGET', META, 'now', 'ranks', 'paused')
local now = clock(ARGV[1], books[1])
local ranks = string.char(100) .. (books[2] or '')
local ready, first = 0, nil
for n = 1, #ranks do
    local due = DUE .. (ranks:byte(n) - 100)
    ready = ready + call('ZCOUNT', due, '-inf', now)
    local head = ready == 0 and call('ZRANGE', due, 0, 0, 'WITHSCORES')[2]
    if head and (not first or tonumber(head) < first) then
        first = tonumber(head)
    end
end
return {ready, books[3] and 1 or 0, ready == 0 and first and first - now or -1}
