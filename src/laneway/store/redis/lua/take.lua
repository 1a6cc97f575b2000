-- take.lua: write a portion of a copy, and the copy's new cursor: commands on keys of one queue. For keys that belong to no queue
-- it is called with the store's base.
-- uses   clock
-- KEYS  1 the queue's base
-- ARGV  1 the time or ''   2 the end of the key with the cursor   3 the cursor before   4 the new cursor   5 the ranks of the jobs
--       then commands: the number of words, the words; keys without their base
-- returns 1; 0 if the stored cursor is another one, or no copy is filling the store, and nothing was done

local books = base .. ARGV[2]
local copied, moved, ranks = unpack(call('HMGET', books, 'copied', 'moved', 'ranks'))
if (copied or '') ~= ARGV[3] or not moved then
    return 0
end
local at = 6
while at <= #ARGV do
    local size = tonumber(ARGV[at])
    call(ARGV[at + 1], base .. ARGV[at + 2], unpack(ARGV, at + 3, at + size))
    at = at + size + 1
end
ranks = ranks or ''
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
