-- _claims.lua: tokens. Stands behind _queue.lua.
--
-- A token is a counter of the queue times TOKEN_STEP, plus the queue's number: so tokens of two queues are never equal.

local number = tonumber(books[B_NUMBER]) or 0
local token = math.max(tonumber(books[B_TOKEN]) or 0, math.floor(ARGV[4] / TOKEN_STEP) + 1) * TOKEN_STEP + number
