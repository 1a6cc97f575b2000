-- beat.lua: record a beat of these workers; return and delete the commands that wait for them.
-- uses   clock
-- KEYS  1 the workers' base
-- ARGV  1 the time or ''   then two per worker: id, WorkerInfo as JSON
-- returns two values per worker: whether it was known, its commands

local heard = {}
for n = 2, #ARGV, 2 do
    local id = ARGV[n]
    heard[#heard + 1] = redis.call('HEXISTS', INFO, id)
    heard[#heard + 1] = redis.call('HGET', COMMANDS, id) or ''
    redis.call('HDEL', COMMANDS, id)
    redis.call('HINCRBY', BEATS, id, 1)
    redis.call('HSET', AT, id, now)
    redis.call('HSET', INFO, id, ARGV[n + 1])
end
return heard
