-- recent_read.sql: the last runs, newest first, in portions.
select runs from laneway_recent order by last desc
