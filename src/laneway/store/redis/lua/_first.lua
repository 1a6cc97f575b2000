-- _first.lua: what comes once: an occurrence of a schedule, or the numbers of an outbox (`at` is then first-last). It is looked at
-- before anything is written, and noted at the end: a script that fails on the way is repeated. Stands behind _clock.lua.

local function key_of(at)
    return at:find('-', 1, true) and SOURCES or SLOTS
end

-- Return whether the occurrence, or the first of the numbers, has come before, or its schedule was dropped after it.
local function came_before(name, at)
    local first = tonumber(at:match('^%d+'))
    local last = call('HGET', key_of(at), name)
    if last and tonumber(last) >= first then
        return true
    end
    local dropped = not at:find('-', 1, true) and call('GET', DROPPED .. name)
    return dropped and tonumber(dropped) >= first
end

-- Note that the occurrence, or the last of the numbers, has come.
local function has_come(name, at)
    call('HSET', key_of(at), name, at:match('%d+$'))
end
