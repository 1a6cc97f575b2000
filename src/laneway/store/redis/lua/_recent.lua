-- _recent.lua: finished runs, the last of them. Stands behind _clock.lua.

local KEEP_RUNS = 1000

-- Keep so many more, JSON with commas between, and return how many there are, if there were `before`. A list's element has some.
-- A few more are kept than must be, so that few calls have to forget any.
local function keep_runs(now, before, number, text)
    call('RPUSH', RECENT, struct.pack('>I8I4', now, number) .. text)
    local kept = (tonumber(before) or 0) + number
    local too_many = kept > KEEP_RUNS + 500
    while too_many do
        local gone = 0
        for _, oldest in ipairs(call('LRANGE', RECENT, 0, 99)) do
            local size = #oldest >= 12 and struct.unpack('>I4', oldest, 9) or 0
            if kept - size < KEEP_RUNS then
                too_many = false
                break
            end
            kept = kept - size
            gone = gone + 1
        end
        if gone == 0 then
            break
        end
        call('LTRIM', RECENT, gone, -1)
    end
    return kept
end
