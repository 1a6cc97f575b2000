-- resume_schedule.lua: end a schedule's pause. The next occurrence to fire is the first after now. If it is not paused, nothing
-- changes.
-- uses   clock
-- KEYS  1 the store's base
-- ARGV  1 the time or ''   2 schedule

if redis.call('HDEL', PAUSED, ARGV[2]) == 1 then
    local last = tonumber(redis.call('HGET', SKIPPED, ARGV[2])) or 0
    redis.call('HSET', SKIPPED, ARGV[2], math.max(last, now))
end
return 0
