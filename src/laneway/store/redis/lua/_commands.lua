-- _commands.lua: commands over many arguments. Stands behind _clock.lua.

-- Run a command over a part of a list, of which Lua can pass only some at once; pairs stay together.
local function many(command, key, list, first, last)
    for from = first, last, 1000 do
        call(command, key, unpack(list, from, math.min(from + 999, last)))
    end
end
