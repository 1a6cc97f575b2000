-- load.lua: how a queue stands that an exchange neither settles in nor claims from. Writes nothing.
-- uses  clock load
-- KEYS  1 the queue's base
-- ARGV  1 the time or ''
-- returns how many are ready, whether the queue is paused, microseconds until the next is due (-1: none, or some are ready)

local books = call('HMGET', META, 'now', 'ranks', 'paused')
return standing(clock(ARGV[1], books[1]), books[2], books[3])
