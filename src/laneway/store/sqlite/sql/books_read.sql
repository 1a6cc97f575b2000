-- books_read.sql: what the store counts.
-- returns books
select books from laneway_meta
