-- _clock.lua: the time. Stands in front of every script that needs it.

local call = redis.call

local now
if ARGV[1] == '' then
    local time = call('TIME')
    now = time[1] * 1000000 + time[2]
else
    now = tonumber(ARGV[1])  -- given by tests
end
