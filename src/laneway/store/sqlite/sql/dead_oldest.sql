-- dead_oldest.sql: dead jobs in the order of dying, but for those that hold their lane.
-- takes how many; returns seq, queue, due
select seq, queue, due from laneway_job where state = 4 and holds = 0 order by due, seq limit ?
