-- _standing.lua: the depth of a queue. Stands behind _queue.lua.

-- Return how many jobs are ready, and microseconds until the next job is due (-1: no job waits, some are ready, or the queue is
-- paused).
local function standing()
    local ranks, ready, first = '\100' .. q.ranks, 0, nil
    for n = 1, #ranks do
        local due = DUE .. (ranks:byte(n) - 100)
        ready = ready + call('ZCOUNT', due, '-inf', q.now_text)
        local head = ready == 0 and tonumber(call('ZRANGE', due, 0, 0, 'WITHSCORES')[2])
        if head and (not first or head < first) then
            first = head
        end
    end
    return ready, ready == 0 and not q.books[B_PAUSED] and first and first - q.now or -1
end
