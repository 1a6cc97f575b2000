-- faults_trim.sql: forget those that were not seen for longest.
-- takes how many to keep
delete from laneway_fault where id in (select id from laneway_fault order by last desc, id limit -1 offset ?)
