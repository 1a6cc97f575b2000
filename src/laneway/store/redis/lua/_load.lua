-- _load.lua: how a queue stands. Stands behind _clock.lua.

-- Returns how many are ready, whether the queue is paused, microseconds until the next is due (-1: none, or some are ready).
local function standing(now, ranks, paused)
    ranks = string.char(100) .. (ranks or '')
    local ready, first = 0, nil
    for n = 1, #ranks do
        local due = DUE .. (ranks:byte(n) - 100)
        ready = ready + call('ZCOUNT', due, '-inf', now)
        local head = ready == 0 and call('ZRANGE', due, 0, 0, 'WITHSCORES')[2]
        if head and (not first or tonumber(head) < first) then
            first = tonumber(head)
        end
    end
    return {ready, paused and 1 or 0, ready == 0 and first and first - now or -1}
end
