-- workers.sql: all workers that beat or hold claims.
-- returns id, beat, at, info; a worker that holds claims and never beat has beat 0 and neither time nor info
select id, beat, at, info from laneway_worker
union all
select distinct worker, 0, null, null from laneway_job
where state = 3 and worker not in (select id from laneway_worker)
