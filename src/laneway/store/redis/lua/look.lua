-- look.lua: the state of some jobs of a queue. Writes nothing.
-- uses   clock queue standing step
-- makes  jobs: record jobs find
-- opens  jobs
-- KEYS  1 the queue's base
-- ARGV  1 the time or ''   then ids
-- returns a list for each job that is in the queue: id, record, state, worker, token, mark, errors, notes, whether it holds its lane,
--         whether it has its unique key, the number of payloads (-1: it is a job, -2: a dead payload), its unique key if that lasts
--         until its end

local list = {}
for n = 2, #ARGV do
    local id = ARGV[n]
    local record = call('HGET', JOB, id)
    local job = open(id, record)
    if job then
        local place, worker, token = where(job)
        local payloads = -1
        if books[B_KIND] == 'lanes' and job.lane then
            payloads = place == 'dead' and -2 or call('ZCARD', WAITS .. job.lane) + call('ZCARD', RUNS .. job.lane)
        end
        local keyed = job.key and call('HGET', UNIQUE, job.key) == id
        list[#list + 1] = {
            id, record, state_of(job, place), worker or '', token or '', mark_of(id) or '', call('HGET', ERRORS, id) or '',
            call('HGET', NOTES, id) or '', holds(job) and 1 or 0, keyed and 1 or 0, payloads,
            job.key and call('HGET', END_KEYS, id) or '',
        }
    elseif record then
        list[#list + 1] = {id, record, 'garbage', '', '', '', '', '', 0, 0, -1, ''}
    end
end
return list
