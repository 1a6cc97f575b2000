-- take.lua: take a portion of a copy, with its cursor: commands on keys that begin alike. For what belongs to no queue it is called
-- with the store's base.
-- uses   clock
-- KEYS  1 the queue's base
-- ARGV  1 the time or ''   2 the end of the key with the cursor   3 the cursor before   4 the cursor   5 the ranks of its jobs
--       then commands: how many words, the words; the key is without its base
-- returns 1; 0 if the cursor is elsewhere, or the store is not being filled, and nothing was done

local books = base .. ARGV[2]
local found = call('HMGET', books, 'copied', 'moved', 'ranks')
if (found[1] or '') ~= ARGV[3] or not found[2] then
    return 0
end
local at = 6
while at <= #ARGV do
    local size = tonumber(ARGV[at])
    call(ARGV[at + 1], base .. ARGV[at + 2], unpack(ARGV, at + 3, at + size))
    at = at + size + 1
end
local ranks = found[3] or ''
for rank in ARGV[5]:gmatch('.') do
    if not ranks:find(rank, 1, true) then
        ranks = ranks .. rank
    end
end
if ranks ~= '' then
    call('HSET', books, 'ranks', ranks)
end
local last = tonumber(call('ZREVRANGE', KEPT, '0', '0', 'WITHSCORES')[2])
if last then
    local after = string.format('%d', math.max(math.ceil((last - now) / 1000), 0) + 1000)
    call('PEXPIRE', FINISHED, after)
    call('PEXPIRE', ENDED, after)
    call('PEXPIRE', KEPT, after)
end
call('HSET', books, 'copied', ARGV[4])
return 1
