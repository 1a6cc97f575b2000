-- books.sql: the books.

-- books_read: what the store counts, and the last runs.
-- returns books, tail
select books, tail from laneway_meta

-- books_write: write it back; the write lock makes that safe.
update laneway_meta set books = :books, tail = :tail

-- queue_read: what is counted of a queue that is not in the books.
-- returns counted
select counted from laneway_queue where name = :name

-- queue_write: write it back.
insert into laneway_queue (name, counted) values (:name, :counted) on conflict (name) do update set counted = excluded.counted

-- queues_read: all queues that are not in the books.
-- returns counted
select counted from laneway_queue
