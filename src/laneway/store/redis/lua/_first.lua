-- _first.lua: pushes that count only once: for an occurrence of a schedule, or for numbers of an outbox (then `at` is
-- first-last). A script checks before it writes anything, and notes the occurrence or the numbers at its end: so a script that
-- failed in between can be repeated. Stands behind _clock.lua.

local function key_of(at)
    return at:find('-', 1, true) and SOURCES or SLOTS
end

-- Return whether the occurrence, or the first of the numbers, was pushed before, or its schedule was dropped at that time or
-- later.
local function came_before(name, at)
    local first = tonumber(at:match('^%d+'))
    local last = call('HGET', key_of(at), name)
    if last and tonumber(last) >= first then
        return true
    end
    local dropped = not at:find('-', 1, true) and call('GET', DROPPED .. name)
    return dropped and tonumber(dropped) >= first
end

-- Note that the occurrence, or all numbers up to the last, were pushed.
local function has_come(name, at)
    call('HSET', key_of(at), name, at:match('%d+$'))
end
