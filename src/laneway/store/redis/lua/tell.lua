-- tell.lua: store a command for a worker's next beat.
-- KEYS  1 the workers' base
-- ARGV  1 worker   2 command
-- returns whether the store knows the worker

if redis.call('HEXISTS', INFO, ARGV[1]) == 0 then
    return 0
end
local before = redis.call('HGET', COMMANDS, ARGV[1])
redis.call('HSET', COMMANDS, ARGV[1], before and before .. ' ' .. ARGV[2] or ARGV[2])
return 1
