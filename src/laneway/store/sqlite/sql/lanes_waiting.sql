-- lanes_waiting.sql: of the jobs of a queue that wait and have no priority, those that are due first; of these the ones in lanes.
-- takes queue, how many to look at; returns seq
select seq from (
    select seq, lane from laneway_job where queue = ? and rank = 0 and state < 2 order by due, place, seq limit ?
) where lane is not null
