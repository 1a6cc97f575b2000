-- _queue.lua: a queue as a script finds it. Stands behind _clock.lua.

local books = call(
    'HMGET', META, 'now', 'seq', 'number', 'kind', 'ranks', 'paused', 'by', 'token', 'enqueued', 'processed', 'runs', 'blocked'
)
books = {  -- the one place that knows them by position
    now = tonumber(books[1]) or 0,  -- the highest time that this queue has seen
    seq = tonumber(books[2]) or 0,  -- the last sequence number
    number = tonumber(books[3]),  -- the queue's number in the registry; nil: it has none yet
    collects = books[4] == 'lanes',  -- it is a collector's
    ranks = books[5] or '',  -- the priorities in use besides 0, a byte each: priority + 100
    paused = books[6],  -- since when; false: it is not
    by = books[7],
    token = tonumber(books[8]) or 0,  -- the counter of the last token: see _claims.lua
    enqueued = tonumber(books[9]) or 0,
    processed = tonumber(books[10]) or 0,
    runs = tonumber(books[11]) or 0,  -- how many finished runs are kept
    blocked = tonumber(books[12]) or 0,  -- how many jobs are parked
}
if books.now > now then
    now = books.now  -- the store's now never goes back
end
local now_text = string.format('%d', now)  -- numbers are written out anew for each command
local ranks = books.ranks
