-- move.lua: give the store a part in a copy, and close it. If the store has a part already, that stays, unless its copy has
-- ended.
-- KEYS  1 the store's base
-- ARGV  1 its part, JSON   2 the copy's id
-- returns the part that the store has now

local move, moved, id = unpack(redis.call('HMGET', MOVE, 'move', 'moved', 'id'))
if move and (moved or id == ARGV[2]) then
    return move
end
redis.call('DEL', MOVE)
redis.call('HSET', MOVE, 'move', ARGV[1], 'moved', ARGV[1], 'id', ARGV[2])
return ARGV[1]
