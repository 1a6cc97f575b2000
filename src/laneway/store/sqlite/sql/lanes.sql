-- lanes.sql: lanes that have something to do. Of those that jobs run in, the one that holds it stands for the lane, else the first
-- by place. Words in braces are put in by look_lanes.py.
-- takes waiting (as JSON: see lanes_waiting.sql), queue, name, now, value, after_queue, after_lane, limit
-- returns seq, queue, lane, task, id, state, attempt, due, collects, errors, size, value
with found as (
    select seq, queue, lane, state, attempt, due, side, holds, place from laneway_job where state = 2
    union all
    select seq, queue, lane, state, attempt, due, side, holds, place from laneway_job where state = 3 and lane is not null
    union all
    select seq, queue, lane, state, attempt, due, side, holds, place from laneway_job where state = 4 and holds = 1
    union all
    select seq, queue, lane, state, attempt, due, side, holds, place from laneway_job
    where seq in (select value from json_each(:waiting))
), heads as (
    select seq, queue, lane, state, attempt, due, side is not null as collects, count(*) as jobs,
           min(case when holds = 1 then '' else printf('%019d%019d', place, seq) end)
    from found
    where lane is not null and {terms}
    group by queue, lane
), sized as (
    select *, case when collects then (select count(*) from laneway_payload p where p.lane = heads.seq) else jobs end as size from heads
), ordered as (
    select *, {value} as value from sized
), page as (
    select * from ordered where {further} order by value {direction}, queue, lane limit :limit
)
select page.seq, page.queue, page.lane, job.task, job.id, page.state, page.attempt, page.due, page.collects, job.errors, page.size, page.value
from page join laneway_job job on job.seq = page.seq
order by page.value {direction}, page.queue, page.lane
