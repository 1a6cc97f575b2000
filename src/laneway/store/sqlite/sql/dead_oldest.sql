-- dead_oldest.sql: dead jobs in the order of dying.
-- takes how many; returns seq, queue, due
select seq, queue, due from laneway_job where state = 4 order by due, seq limit ?
