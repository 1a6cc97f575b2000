-- books_write.sql: write it back; the write lock makes that safe.
-- takes books
update laneway_meta set books = ?
