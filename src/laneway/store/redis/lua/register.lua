-- register.lua: give a queue its number, and ring if it is new.
-- KEYS  1 the store's base
-- ARGV  1 queue   2 how many numbers there are   3 'copy' if a copy brings it
-- returns its number, -1 if there is none left

local found = redis.call('HGET', QUEUES, ARGV[1])
if found then
    return tonumber(found)
end
local moved = ARGV[3] ~= 'copy' and redis.call('HGET', MOVE, 'moved')
if moved then
    return redis.error_reply(MOVED_REPLY .. moved)
end
local number = redis.call('HLEN', QUEUES)
if number >= tonumber(ARGV[2]) then
    return -1
end
redis.call('HSET', QUEUES, ARGV[1], number)
if redis.call('EXISTS', NEWS) == 0 then
    redis.call('RPUSH', NEWS, 1)
    redis.call('PEXPIRE', NEWS, 10000)
end
return number
