-- trim.lua: remove the oldest dead jobs of a queue, except those that halt their lane.
-- uses   clock queue standing step
-- makes  jobs: record jobs
-- KEYS  1 the queue's base
-- ARGV  1 the time or ''   2 remove jobs that died this many microseconds ago or earlier   3 and at least this many of the oldest jobs
--       4 but at most this many
-- returns how many were removed

if books[B_MOVED] then
    return 0  -- a copy has closed the store
end
local old = call('ZCOUNT', DEAD, '-inf', now - tonumber(ARGV[2]))
local number = math.min(math.max(old, tonumber(ARGV[3])), tonumber(ARGV[4]))
local ids = number > 0 and call('ZRANGE', DEAD, 0, number - 1) or {}
if #ids > 0 then
    call('ZREM', DEAD, unpack(ids))
    leave(ids, 1, #ids)
end
return #ids
