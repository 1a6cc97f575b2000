-- books_write.sql: write it back; the write lock makes that safe.
-- takes books, tail
update laneway_meta set books = ?, tail = ?
