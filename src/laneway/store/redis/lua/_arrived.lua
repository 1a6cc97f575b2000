-- _arrived.lua: count what arrives, by task, in stretches of ten seconds. Stands in front of the scripts that push.

-- The task's name in a record; `at`: where the record goes on after its numbers.
local function task_of(flags, record, at)
    if bit.band(flags, 2) ~= 0 then
        at = at + 8
    end
    for _, flag in ipairs({1, 4}) do
        if bit.band(flags, flag) ~= 0 then
            at = at + 2 + struct.unpack('>I2', record, at)
        end
    end
    return (struct.unpack('>I2c0', record, at))
end

local function arrive(now, task, number)
    redis.call('HINCRBY', ARRIVED, math.floor(now / 10000000) .. ':' .. task, number)
end
