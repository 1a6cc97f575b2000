-- _queue.lua: the books and state of the script's queue. Stands behind _clock.lua. Names such as `books[B_NOW]` are described in
-- scripts.py.

local books = call('HMGET', META, BOOKS)
if (tonumber(books[B_NOW]) or 0) > now then
    now = tonumber(books[B_NOW])  -- the store's time never goes back
end
-- The state that a step reads and changes. It is one table, because a server makes each function's upvalues anew in each call,
-- and it has few fields at first. Others are added when needed: `counts` (counter → by how much it grows), `runs` (finished runs,
-- a JSON text each), `processed` (how many payloads of a collector succeeded), `seq` (the last sequence number, if this step took
-- one), `later` (of the jobs that this step put into an index and that are not due yet, the first: rank → {due, entry}).
local q = {
    books = books,
    now = now,
    now_text = string.format('%d', now),  -- formatted once, instead of by each command
    ranks = books[B_RANKS] or '',  -- the priorities in use besides 0, a byte each: priority + 100
    blocked = tonumber(books[B_BLOCKED]) or 0,  -- how many jobs are parked
    changed = false,  -- whether the books must be written
}
