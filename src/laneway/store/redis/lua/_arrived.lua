-- _arrived.lua: count arrivals, by task, in intervals of ten seconds. Stands in front of the scripts that push.

local function arrive(task, number)
    call('HINCRBY', ARRIVED, math.floor(now / 10000000) .. ':' .. task, number)
end
