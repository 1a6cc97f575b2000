-- _queue.lua: a queue as a script finds it. Stands behind _clock.lua. `books[B_NOW]` and its like are described in scripts.py.

local books = call('HMGET', META, BOOKS)
if (tonumber(books[B_NOW]) or 0) > now then
    now = tonumber(books[B_NOW])  -- the store's time never goes back
end
-- The state that a step reads and changes. It is one value, because upvalues are made anew for each function, and it begins
-- small. Rare fields are added when needed: `counts` (counter → how many more), `runs` (finished runs, a JSON text each),
-- `processed` (payloads of a collector that succeeded), `seq` (the last sequence number, if one was given), `later` (jobs that
-- wait since this step and are due later: rank → {due, entry}).
local q = {
    books = books,
    now = now,
    now_text = string.format('%d', now),  -- a number would be formatted anew for each command
    ranks = books[B_RANKS] or '',  -- the priorities in use besides 0, a byte each: priority + 100
    blocked = tonumber(books[B_BLOCKED]) or 0,  -- how many jobs are parked
    changed = false,  -- whether the books must be written
}
