-- set_schedule.lua: keep a schedule, which begins now. It replaces a schedule with its name, and stays paused if that was paused.
-- uses   clock
-- KEYS  1 the store's base
-- ARGV  1 the time or ''   2 the highest time that a queue has seen   3 schedule   4 its entry

local last = tonumber(redis.call('HGET', SKIPPED, ARGV[3])) or 0
redis.call('HSET', KEPT, ARGV[3], ARGV[4])
redis.call('HSET', SKIPPED, ARGV[3], math.max(last, now, tonumber(ARGV[2])))
return 0
