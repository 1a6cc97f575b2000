-- turn.sql: statements of PostgreSQL's write transactions (turns) and read transactions: queues, the ledger, numbers, locks.

-- queues_find: all queues.
select name, paused, paused_by, paused_at, collects from laneway_queue

-- queue_find: a queue.
select name, paused, paused_by, paused_at, collects from laneway_queue where name = :name

-- queue_add: insert a queue, with its first job, or when it is paused before that.
insert into laneway_queue (name) values (:name) on conflict (name) do nothing

-- queue_collects: set whether a queue has lanes of a collector, or jobs. From the first such queue of the store on, each push
-- reads the row of its queue: see push_one.
update laneway_queue set collects = case when :collects then nextval('laneway_special') > 0 else false end where name = :name

-- queue_pause: stop or resume claims from a queue. A queue that is paused already does not change.
update laneway_queue set paused = :paused, paused_by = :by, paused_at = :at where name = :name and paused is distinct from :now_paused

-- ledger_count: record by how much the number of a queue's jobs in each state changed.
insert into laneway_ledger (at, queue, scheduled, ready, retrying, blocked, running, dead)
values (:at, :queue, :scheduled, :ready, :retrying, :blocked, :running, :dead)

-- ledger_arrive: record how many jobs of a task arrived in a queue.
insert into laneway_ledger (at, queue, task, arrived) values (:at, :queue, :task, :arrived)

-- ledger_rest: record changes of the counters, and finished runs.
insert into laneway_ledger (at, totals, runs, number) values (:at, :totals, :runs, :number)

-- unfolded_runs: the most recent runs: those in the ledger that no fold has added up.
select runs from laneway_unfolded_vN() where number > 0 and runs is not null order by at, xid

-- unfolded_arrivals: arrivals in the ledger that no fold has added up. ten: the length of an interval, microseconds.
select at - at % cast(:ten as bigint), queue, task, arrived from laneway_unfolded_vN() where arrived > 0 and queue is not null and task is not null

-- closed_read: the time up to which statistics are summed.
select closed from laneway_books

-- closed_write: set the time up to which statistics are summed.
update laneway_books set closed = :until

-- seqs: the next sequence numbers.
select nextval('laneway_seq') from generate_series(1, cast(:number as integer))

-- scores: reserve the next scores; return the last of them, microseconds. All are greater than the last score given before, and
-- the last of them is the store's now, or later.
select setval('laneway_score', greatest(last_value + :number, :now)) from laneway_score

-- token: a claim's token.
select laneway_next_token()

-- first_later: when the first scheduled or retrying job of a queue is due.
select min(due) from laneway_job where queue = :queue and state = any ('{$scheduled,$retrying}')

-- lock: take one of the store's advisory locks, until the transaction ends; see common.sql.
select pg_advisory_xact_lock(hashtextextended(:schema, :number))

-- lock_queue: wait for all transactions that push into a queue, and keep others from beginning; see push.sql.
select pg_advisory_xact_lock(hashtextextended(:queue, hashtextextended(:schema, 78)))

-- inbox_take: take the oldest rows out of the inbox.
with old as (
    delete from laneway_inbox where seq in (select seq from laneway_inbox order by seq limit :most) returning *
)
select id, queue, task, lane, rank, delay, at, unique_key, end_key, expires, body, gather, score from old order by seq

-- inbox_has: whether the inbox has rows of a queue.
select 1 from laneway_inbox where queue = :queue limit 1

-- depths: the number of ready jobs of each queue that is not paused.
select q.name, coalesce(c.ready, 0) from laneway_queue q left join laneway_counts_vN(laneway_view_vN()) c on c.queue = q.name
where not q.paused

-- enrol: the number (fence) that a worker's exchanges must carry.
select * from laneway_enrol_vN(:worker)

-- about: the server's version, the size of the tables, connections, uptime.
select current_setting('server_version'),
       (select cast(coalesce(sum(pg_total_relation_size(oid)), 0) as bigint) from pg_class
        where relnamespace = cast(:schema as regnamespace) and relkind = 'r'),
       (select cast(sum(numbackends) as bigint) from pg_stat_database),
       cast(extract(epoch from now() - pg_postmaster_start_time()) as double precision)
