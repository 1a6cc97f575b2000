-- count.lua: the number of jobs of a queue in each state, and its pause. Writes nothing.
-- uses   clock queue
-- KEYS  1 the queue's base
-- ARGV  1 the time or ''
-- returns scheduled, ready, retrying, blocked, running, dead, since when the queue is paused or '', the name given with the pause, its
-- kind or '', and how long the job that is due first has waited, microseconds

local all = '\100' .. q.ranks
local ready, waiting, running, first = 0, 0, 0, now
for n = 1, #all do
    local due = DUE .. (all:byte(n) - 100)
    ready = ready + call('ZCOUNT', due, '-inf', now)
    waiting = waiting + call('ZCARD', due)
    first = math.min(first, tonumber(call('ZRANGE', due, 0, 0, 'WITHSCORES')[2]) or first)
end
for _, worker in ipairs(call('SMEMBERS', HOLDERS)) do
    running = running + call('HLEN', RUNNING .. worker)
end
local retrying = call('ZCARD', RETRY) - call('ZCOUNT', RETRY, '-inf', now)
local dead = call('ZCARD', DEAD) + call('ZCARD', HALTED)
return {
    waiting - ready - retrying, ready, retrying, q.blocked, running, dead,
    books[B_PAUSED] or '', books[B_BY] or '', books[B_KIND] or '', now - first,
}
