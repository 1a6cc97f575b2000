-- note.lua: store the notes of runs of one queue. Notes for a claim that is no longer held are ignored.
-- KEYS  1 the queue's base
-- ARGV  three per note: id, token, JSON

local holders = redis.call('SMEMBERS', HOLDERS)
local collects = redis.call('HGET', META, 'kind') == 'lanes'
for n = 1, #ARGV, 3 do
    for _, worker in ipairs(holders) do
        if redis.call('HGET', RUNNING .. worker, ARGV[n]) == ARGV[n + 1] then
            redis.call('HSET', NOTES, ARGV[n], ARGV[n + 2])
            -- All lanes of a collector's run have one token: store the notes with each.
            local held = collects and redis.call('HGETALL', RUNNING .. worker) or {}
            for m = 1, #held, 2 do
                if held[m + 1] == ARGV[n + 1] then
                    redis.call('HSET', NOTES, held[m], ARGV[n + 2])
                end
            end
        end
    end
end
return 0
