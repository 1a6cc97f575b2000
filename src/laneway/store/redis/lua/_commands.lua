-- _commands.lua: commands over many arguments. Stands behind _clock.lua.

-- Run a command with part of a list as its arguments. Lua can pass only some arguments at once, so the command may run several
-- times; the two values of a pair are passed to one call.
local function many(command, key, list, first, last)
    for from = first, last, 1000 do
        call(command, key, unpack(list, from, math.min(from + 999, last)))
    end
end
