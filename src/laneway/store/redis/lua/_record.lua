-- _record.lua: a job's record and its entry in an index. The bytes are described in record.py; the flags come from there.

local band, bor, bnot = bit.band, bit.bor, bit.bnot
local HEAD, FRESH_HEAD = '>BBBI7I8I8I8I2', '>BBBI7I8'

-- Read the part of a record behind its numbers, from `at` on. Return task, lane, unique key, after how long it expires, and where
-- the body begins.
local function read_texts(flags, record, at)
    local task, lane, key, expires
    if band(flags, F_EXPIRES) ~= 0 then
        expires, at = struct.unpack('>I8', record, at)
    end
    if band(flags, F_LANE) ~= 0 then
        lane, at = struct.unpack('>I2c0', record, at)
    end
    if band(flags, F_UNIQUE) ~= 0 then
        key, at = struct.unpack('>I2c0', record, at)
    end
    task, at = struct.unpack('>I2c0', record, at)
    return task, lane, key, expires, at
end

-- Return the record of a new job. `rest`: its flags, its rank, and the part of the record behind the numbers.
local function new_record(rest, seq, place)
    local flags, rank = rest:byte(1, 2)
    flags = band(flags, bnot(F_UNTIL_END))
    if place == now then
        return struct.pack(FRESH_HEAD, flags + F_FRESH, rank, 0, seq, now) .. rest:sub(3)
    end
    return struct.pack(HEAD, flags, rank, 0, seq, now, place, place, 0) .. rest:sub(3)
end

-- Return a job's entry in its lane's index of parked jobs, which are sorted by the time of their places. A waiting job whose due
-- time is that of its place has this entry in the index of waiting jobs too.
local function line_entry(seq, id)
    return struct.pack('>BI7', 255, seq) .. id
end
