-- _queue.lua: a queue as a script finds it. Stands behind _clock.lua. `books[B_NOW]` and its like are described in scripts.py.

local books = call('HMGET', META, BOOKS)
if (tonumber(books[B_NOW]) or 0) > now then
    now = tonumber(books[B_NOW])  -- the store's now never goes back
end
-- What a step knows and changes. It is one value, because what functions share is made anew for each of them, and it begins small.
-- What is rare comes to it: `counts` (what is counted: name → how many more), `runs` (finished runs, a JSON text each),
-- `processed` (payloads of a collector that succeeded), `seq` (the last sequence number, if one was given), `later` (who waits
-- since this step and is due later: rank → {due, entry}).
local q = {
    books = books,
    now = now,
    now_text = string.format('%d', now),  -- a number is written out anew for each command
    ranks = books[B_RANKS] or '',  -- the priorities in use besides 0, a byte each: priority + 100
    blocked = tonumber(books[B_BLOCKED]) or 0,  -- how many jobs are parked
    changed = false,  -- the books are to be written
}
