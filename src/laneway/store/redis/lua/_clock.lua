-- _clock.lua: the time. Stands in front of every script that has to know it.

local call = redis.call

local now = tonumber(ARGV[1])  -- given by tests; else it is the server's
if not now then
    local time = call('TIME')
    now = time[1] * 1000000 + time[2]
end
