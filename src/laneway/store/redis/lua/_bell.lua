-- _bell.lua: the bell.

-- One entry wakes one waiting worker; it expires, so that no key is left behind.
local function ring()
    if call('EXISTS', BELL) == 0 then
        call('RPUSH', BELL, 1)
        call('PEXPIRE', BELL, 10000)
    end
end
