-- skip.lua: advance a schedule to an occurrence without pushing a job.
-- KEYS  1 the store's base
-- ARGV  1 schedule   2 occurrence

local last = tonumber(redis.call('HGET', SKIPPED, ARGV[1])) or 0
redis.call('HSET', SKIPPED, ARGV[1], math.max(last, tonumber(ARGV[2])))
return 0
