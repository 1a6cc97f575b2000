-- books_read.sql: what the store counts, and the last runs.
-- returns books, tail
select books, tail from laneway_meta
