-- _bell.lua: the bell.

-- One entry of the list wakes one waiting worker. The key expires, so that it does not stay if no worker reads it.
local function ring()
    if call('EXISTS', BELL) == 0 then
        call('RPUSH', BELL, 1)
        call('PEXPIRE', BELL, 10000)
    end
end
