-- resume_schedule.lua: end a schedule's pause. The next occurrence to fire is the first after now. If it is not paused, nothing
-- changes.
-- uses   clock
-- KEYS  1 the store's base
-- ARGV  1 the time or ''   2 the highest time that a queue has seen   3 schedule

if redis.call('HDEL', PAUSED, ARGV[3]) == 1 then
    local last = tonumber(redis.call('HGET', SKIPPED, ARGV[3])) or 0
    redis.call('HSET', SKIPPED, ARGV[3], math.max(last, now, tonumber(ARGV[2])))
end
return 0
