-- _clock.lua: the store's now, and the bell. Stands in front of the scripts of a queue.

local call = redis.call

-- The later of the time (given for tests, else the server's) and the highest that this queue has seen.
local function clock(given, before)
    local now = tonumber(given)
    if not now then
        local time = call('TIME')
        now = time[1] * 1000000 + time[2]
    end
    before = tonumber(before)
    return before and before > now and before or now
end

-- One entry wakes one who waits; it fades, so that no key is left behind.
local function ring()
    if call('EXISTS', BELL) == 0 then
        call('RPUSH', BELL, 1)
        call('PEXPIRE', BELL, 10000)
    end
end

-- A command over many arguments, of which Lua hands over only some at once; pairs stay together.
local function in_portions(command, key, list)
    for first = 1, #list, 1000 do
        call(command, key, unpack(list, first, math.min(first + 999, #list)))
    end
end

-- Write down claims: id, token, … A small hash is a list inside, which is searched from its beginning and copied to grow. A value
-- that is too long for that makes it a table, and it stays one: a worker that has many at once gets a table to begin with.
local function hold(running, held, new)
    local wide = new and #held >= 20
    if wide then
        call('HSET', running, '', string.rep(' ', 65))
    end
    in_portions('HSET', running, held)
    if wide then
        call('HDEL', running, '')
    end
end
