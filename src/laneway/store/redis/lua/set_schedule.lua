-- set_schedule.lua: keep a schedule, which begins now. It replaces a schedule with its name, and stays paused if that was paused.
-- uses   clock
-- KEYS  1 the store's base
-- ARGV  1 the time or ''   2 schedule   3 its entry

local last = tonumber(redis.call('HGET', SKIPPED, ARGV[2])) or 0
redis.call('HSET', KEPT, ARGV[2], ARGV[3])
redis.call('HSET', SKIPPED, ARGV[2], math.max(last, now))
return 0
