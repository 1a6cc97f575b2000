-- _commands.lua: what most scripts of a queue do with commands. Stands behind _clock.lua.

-- A command over a part of a list, of which Lua hands over only some at once; pairs stay together.
local function many(command, key, list, first, last)
    for from = first, last, 1000 do
        call(command, key, unpack(list, from, math.min(from + 999, last)))
    end
end

-- One entry wakes one who waits; it fades, so that no key is left behind.
local function ring()
    if call('EXISTS', BELL) == 0 then
        call('RPUSH', BELL, 1)
        call('PEXPIRE', BELL, 10000)
    end
end
