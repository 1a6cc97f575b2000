-- queue_depth.lua: the depth of a queue in which an exchange neither settles nor claims. Writes nothing.
-- uses   clock queue standing
-- KEYS  1 the queue's base
-- ARGV  1 the time or ''
-- returns how many jobs are ready, whether the queue is paused, microseconds until the next job is due (-1: none, or some are ready)

local ready, due_in = standing()
return {ready, books[B_PAUSED] and 1 or 0, due_in}
