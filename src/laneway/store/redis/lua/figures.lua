-- figures.lua: buckets of a level, and reports that are not summed yet. Writes nothing.
-- KEYS  1 the store's base
-- ARGV  1 the level, seconds   then which buckets: numbers of the level
-- returns the interval up to which all is summed, the buckets, and for each open interval its number and its reports

local buckets = {}
for first = 2, #ARGV, 1000 do
    for _, bucket in ipairs(redis.call('HMGET', FIGURES .. ARGV[1], unpack(ARGV, first, math.min(first + 999, #ARGV)))) do
        buckets[#buckets + 1] = bucket
    end
end
local open = {}
for _, stretch in ipairs(redis.call('SMEMBERS', OPEN)) do
    open[#open + 1] = {stretch, redis.call('LRANGE', REPORTS .. stretch, 0, -1)}
end
return {tonumber(redis.call('HGET', STATISTICS, 'closed')) or 0, buckets, open}
