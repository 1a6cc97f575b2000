-- books.sql: the books, a store's counters.

-- books_read: the store's counts, and the last runs.
-- returns books, tail
select books, tail from laneway_meta

-- books_write: write the counts and the last runs back. The write lock is held, so no other transaction has changed them.
update laneway_meta set books = :books, tail = :tail

-- queue_read: the counts of a queue that has a row of its own.
-- returns counted
select counted from laneway_queue where name = :name

-- queue_write: write the counts of such a queue back.
insert into laneway_queue (name, counted) values (:name, :counted) on conflict (name) do update set counted = excluded.counted

-- queues_read: the counts of all queues that have rows of their own.
-- returns counted
select counted from laneway_queue
