-- pause.lua: stop or resume claims from a queue.
-- uses   clock queue open bell
-- KEYS  1 the queue's base
-- ARGV  1 the time or ''   2 1 to pause, 0 to resume   3 the name given for it   4 the queue's number

if not books[B_NUMBER] then
    call('HSET', META, 'number', ARGV[4])
end
if ARGV[2] == '0' then
    call('HDEL', META, 'paused', 'by')
elseif not books[B_PAUSED] then
    call('HSET', META, 'paused', now, 'by', ARGV[3])
end
call('HSET', META, 'now', now)
ring()
return 0
