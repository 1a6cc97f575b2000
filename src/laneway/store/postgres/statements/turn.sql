-- turn.sql: what turns and readings need beside the rules: queues, the ledger, numbers, locks.

-- queues_find: all queues.
select name, paused, paused_by, paused_at, collects from laneway_queue

-- queue_find: a queue.
select name, paused, paused_by, paused_at, collects from laneway_queue where name = :name

-- queue_add: a queue has its first job, or is paused before.
insert into laneway_queue (name) values (:name) on conflict (name) do nothing

-- queue_collects: a queue has lanes of a collector, or jobs. From the first of a collector on, pushes look at their queues: see push_one.
update laneway_queue set collects = case when :collects then nextval('laneway_special') > 0 else false end where name = :name

-- queue_pause: claims from a queue stop, or go on. A paused queue stays as it is.
update laneway_queue set paused = :paused, paused_by = :by, paused_at = :at where name = :name and paused is distinct from :now_paused

-- ledger_count: jobs of a queue came into states, or left them.
insert into laneway_ledger (at, queue, scheduled, ready, retrying, blocked, running, dead)
values (:at, :queue, :scheduled, :ready, :retrying, :blocked, :running, :dead)

-- ledger_arrive: jobs of a task came into a queue.
insert into laneway_ledger (at, queue, task, arrived) values (:at, :queue, :task, :arrived)

-- ledger_rest: counters, and runs that ended.
insert into laneway_ledger (at, totals, runs, number) values (:at, :totals, :runs, :number)

-- unfolded_runs: the most recent runs: those that are in the ledger alone.
select runs from laneway_unfolded_vN() where number > 0 and runs is not null order by at, xid

-- unfolded_arrivals: arrivals that are in the ledger alone. ten: the length of an interval.
select at - at % cast(:ten as bigint), queue, task, arrived from laneway_unfolded_vN() where arrived > 0 and queue is not null and task is not null

-- closed_read: up to which time statistics are summed.
select closed from laneway_books

-- closed_write: they are summed up to another.
update laneway_books set closed = :until

-- seqs: the next sequence numbers.
select nextval('laneway_seq') from generate_series(1, cast(:number as integer))

-- scores: the last of the next scores, microseconds: the store's now, or right after the last one that was given.
select setval('laneway_score', greatest(last_value + :number, :now)) from laneway_score

-- token: a claim's token.
select laneway_next_token()

-- first_later: when the first job of a queue is due that waits for its time.
select min(due) from laneway_job where queue = :queue and state = any ('{$scheduled,$retrying}')

-- lock: one of the store's locks, until the transaction ends; see common.sql.
select pg_advisory_xact_lock(hashtextextended(:schema, :number))

-- lock_queue: wait for all pushes into a queue, and let no other begin; see push.sql.
select pg_advisory_xact_lock(hashtextextended(:queue, hashtextextended(:schema, 78)))

-- inbox_take: take what came first out of the inbox.
with old as (
    delete from laneway_inbox where seq in (select seq from laneway_inbox order by seq limit :most) returning *
)
select id, queue, task, lane, rank, delay, at, unique_key, end_key, expires, body, gather, score from old order by seq

-- inbox_has: whether something of a queue is in the inbox.
select 1 from laneway_inbox where queue = :queue limit 1

-- depths: the ready jobs of all queues that are not paused.
select q.name, coalesce(c.ready, 0) from laneway_queue q left join laneway_counts_vN(laneway_view_vN()) c on c.queue = q.name
where not q.paused

-- enrol: the number that exchanges of a worker need.
select * from laneway_enrol_vN(:worker)

-- about: the server's version, the size of the tables, connections, uptime.
select current_setting('server_version'),
       (select cast(coalesce(sum(pg_total_relation_size(oid)), 0) as bigint) from pg_class
        where relnamespace = cast(:schema as regnamespace) and relkind = 'r'),
       (select cast(sum(numbackends) as bigint) from pg_stat_database),
       cast(extract(epoch from now() - pg_postmaster_start_time()) as double precision)
