-- close.lua: store the sums of intervals, and delete the reports that were summed.
-- KEYS  1 the store's base
-- ARGV  1 the interval up to which statistics were summed before   2 the one up to which they are now
--       3 reporters whose last report is older than this time are deleted
--       4 a msgpack list of pairs: level in seconds, and the number of that level below which buckets are deleted
--       then three per bucket: level in seconds, number of the level, figures
-- returns 1; 0 if another worker has closed meanwhile, and nothing was done

redis.call('HDEL', STATISTICS, 'closing')
if (tonumber(redis.call('HGET', STATISTICS, 'closed')) or 0) ~= tonumber(ARGV[1]) then
    return 0
end
for n = 5, #ARGV, 3 do
    redis.call('HSET', FIGURES .. ARGV[n], ARGV[n + 1], ARGV[n + 2])
end
for _, stretch in ipairs(redis.call('SMEMBERS', OPEN)) do
    if tonumber(stretch) < tonumber(ARGV[2]) then
        redis.call('UNLINK', REPORTS .. stretch)
        redis.call('SREM', OPEN, stretch)
    end
end
local old = cmsgpack.unpack(ARGV[4])
for n = 1, #old, 2 do
    for _, number in ipairs(redis.call('HKEYS', FIGURES .. old[n])) do
        if tonumber(number) < old[n + 1] then
            redis.call('HDEL', FIGURES .. old[n], number)
        end
    end
end
for _, worker in ipairs(redis.call('ZRANGEBYSCORE', REPORTED, '-inf', '(' .. ARGV[3], 'LIMIT', 0, 1000)) do
    redis.call('HDEL', REPORTERS, worker)
    redis.call('ZREM', REPORTED, worker)
end
redis.call('HSET', STATISTICS, 'closed', ARGV[2])
return 1
