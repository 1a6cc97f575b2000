-- _claims.lua: what an exchange holds and claims. Stands behind _step.lua.

local running = RUNNING .. ARGV[2]
local settled = false  -- the worker held something, so it is among the holders
local claimed = 0
local passed = 0  -- how many due jobs were passed over: parked, or too old
local words = {}  -- of those that remember why a claim was lost: id, word, …

-- A token is a counter of the queue times TOKEN_STEP, plus the queue's number: so two queues never give the same one.
local token = math.max(books.token, math.floor(ARGV[4] / TOKEN_STEP) + 1) * TOKEN_STEP + (books.number or 0)
local first_token = token + TOKEN_STEP
