-- give_back.lua: take back a worker's claims in one queue: the worker gives them back itself, or it is dead.
-- uses   clock queue standing step
-- makes  jobs: record jobs lanes
-- opens  jobs
-- KEYS  1 the queue's base
-- ARGV  1 the time or ''   2 worker   3 tokens to keep, a msgpack list of texts   4 the error if it died, JSON, else ''
--       5 why claims were lost (`crash`, `timeout`), for some tokens: a flat msgpack list of token, word
-- returns ids

local bor = bit.bor
local worker, died = ARGV[2], ARGV[4] ~= ''
local running = RUNNING .. worker
local keep, words = {}, {}
for _, token in ipairs(cmsgpack.unpack(ARGV[3])) do
    keep[token] = true
end
local said = cmsgpack.unpack(ARGV[5])
for n = 1, #said, 2 do
    words[said[n]] = said[n + 1]
end

local held, back = call('HGETALL', running), {}
for n = 1, #held, 2 do
    if not keep[held[n + 1]] then
        back[#back + 1] = {held[n], held[n + 1], tonumber(held[n + 1]) or 0}
    end
end
table.sort(back, function(a, b) return a[3] < b[3] end)

local ids = {}
for n, claim in ipairs(back) do
    local id, token = claim[1], claim[2]
    ids[n] = id
    call('HDEL', running, id)
    q.changed = true
    local record = call('HGET', JOB, id)
    local job = open(id, record)
    local mark = job and mark_of(id)
    local lane = books[B_KIND] == 'lanes' and job and open_lane(id, record)
    if not job then
        if record then
            wait_unread(id)
        end
    elseif mark and lane then
        lane_ends_as_asked(lane, mark)
    elseif mark then
        end_as_asked(job, mark)
    else
        job = lane or job
        if died then
            job.flags = bor(job.flags, F_RAN)
            local attempt = ',"attempt":' .. (job.attempt + 1) .. '}'
            add_error(job, ARGV[4]:sub(1, -2) .. attempt)
            if words[token] then
                job.flags = bor(job.flags, F_LOST)
                call('HSET', LOST, id, words[token])
            end
            write(job)
        end
        if lane then
            lane_waits_again(lane, lane.due)
        else
            wait(job)
        end
    end
end
if died and #ids > 0 then
    count('recovered', #ids)
end
if call('EXISTS', running) == 0 then
    call('SREM', HOLDERS, worker)
end
finish((standing()))
return ids
