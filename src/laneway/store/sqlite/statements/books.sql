-- books.sql: the books.

-- books_read: the store's counts, and the last runs.
-- returns books, tail
select books, tail from laneway_meta

-- books_write: write them back; the write lock makes that safe.
update laneway_meta set books = :books, tail = :tail

-- queue_read: the counts of a queue that is not in the books.
-- returns counted
select counted from laneway_queue where name = :name

-- queue_write: write them back.
insert into laneway_queue (name, counted) values (:name, :counted) on conflict (name) do update set counted = excluded.counted

-- queues_read: all queues that are not in the books.
-- returns counted
select counted from laneway_queue
