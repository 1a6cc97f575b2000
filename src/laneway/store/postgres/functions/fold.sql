-- fold.sql: add up the ledger.
-- A fold adds the rows that are visible now and were not visible in the snapshot of the last fold: rows of transactions that have
-- begun since, or were in progress then. So it reads no row twice, not even a deleted one, and counts a transaction that was open
-- for an hour when that has committed. Rows that were restored from a dump are neither: see restore.sql.

create function $schema.fold_$version(p_ten bigint, p_keep bigint) returns boolean language plpgsql volatile $planner as $$
declare
    v_old pg_snapshot;
    v_runs bigint;
    v_cleared xid8;
begin
    if not pg_try_advisory_xact_lock(hashtextextended('$schema', 80)) then
        return false;
    end if;
    if not $schema.is_original_$version() then
        return false;
    end if;
    select snap, runs, cleared into v_old, v_runs, v_cleared from $schema.books;  -- the lock is held: this statement sees the last fold
    with now as materialized (select pg_current_snapshot() as snap),
    new as materialized (
        select l.* from $schema.ledger l where l.xid >= pg_snapshot_xmax(v_old)
        union all
        select l.* from pg_snapshot_xip(v_old) x join $schema.ledger l on l.xid = x
    ), queues as (
        insert into $schema.counted as old (queue, scheduled, ready, retrying, blocked, running, dead)
        select queue, sum(scheduled), sum(ready), sum(retrying), sum(blocked), sum(running), sum(dead)
        from new where queue is not null group by queue
        on conflict (queue) do update set scheduled = old.scheduled + excluded.scheduled, ready = old.ready + excluded.ready,
            retrying = old.retrying + excluded.retrying, blocked = old.blocked + excluded.blocked,
            running = old.running + excluded.running, dead = old.dead + excluded.dead
    ), known as (
        insert into $schema.queue (name) select distinct queue from new where queue is not null on conflict (name) do nothing
    ), arrivals as (
        insert into $schema.arrived as old (at, queue, task, number)
        select at - at % p_ten, queue, task, sum(arrived) from new where arrived > 0 and queue is not null and task is not null group by 1, 2, 3
        on conflict (at, queue, task) do update set number = old.number + excluded.number
    ), portions as (
        insert into $schema.recent (last, runs)
        select b.runs + sum(n.number) over (order by n.at, n.xid, n.place), n.runs
        from (select at, xid, runs, number, row_number() over () as place from new where number > 0 and runs is not null) n, $schema.books b
    ), totals as (
        select jsonb_object_agg(name, value) as totals from (
            select t.key as name, sum(t.value::bigint) as value
            from (select totals from new where totals is not null union all select totals from $schema.books) a, jsonb_each_text(a.totals) t
            group by t.key
        ) s
    )
    update $schema.books set snap = now.snap, totals = coalesce(t.totals, '{}'), cleared = pg_snapshot_xmin(v_old),
        runs = runs + (select coalesce(sum(number), 0) from new)
    from now, totals t;
    -- The last fold deleted all earlier rows. The lower bound keeps this scan away from their dead entries in the index.
    delete from $schema.ledger where xid >= v_cleared and xid < pg_snapshot_xmin(v_old);
    delete from $schema.recent where last > v_runs - p_keep and last <= (select runs - p_keep from $schema.books);
    return true;
end $$;

-- counts: the number of jobs of each queue in each state, with the rows of the ledger that are not added up.
create function $schema.counts_$version(p_now bigint)
returns table (queue text, scheduled bigint, ready bigint, retrying bigint, blocked bigint, running bigint, dead bigint)
language plpgsql stable $planner as $$
#variable_conflict use_column
begin
    return query
    with book as (select snap from $schema.books),
    new as (
        select l.* from book, $schema.ledger l where l.xid >= pg_snapshot_xmax(book.snap)
        union all
        select l.* from book, pg_snapshot_xip(book.snap) x join $schema.ledger l on l.xid = x
    ), sums as (
        select queue, sum(scheduled) as scheduled, sum(ready) as ready, sum(retrying) as retrying, sum(blocked) as blocked,
               sum(running) as running, sum(dead) as dead
        from (
            select queue, scheduled, ready, retrying, blocked, running, dead from $schema.counted
            union all
            select queue, scheduled, ready, retrying, blocked, running, dead from new where queue is not null
        ) a
        group by queue
    )
    select s.queue, (s.scheduled - coalesce(l.scheduled, 0))::bigint, (s.ready + coalesce(l.scheduled + l.retrying, 0))::bigint,
           (s.retrying - coalesce(l.retrying, 0))::bigint, s.blocked::bigint, s.running::bigint, s.dead::bigint
    from sums s left join lateral (
        select count(*) filter (where j.state = $scheduled) as scheduled, count(*) filter (where j.state = $retrying) as retrying
        from $schema.job j
        where (s.scheduled > 0 or s.retrying > 0) and j.queue = s.queue and j.state = any ('{$scheduled,$retrying}') and j.due <= p_now
    ) l on true;
end $$;

-- totals: the counters since the store was created, with the rows of the ledger that are not added up.
create function $schema.totals_$version() returns table (name text, value bigint) language plpgsql stable $planner as $$
#variable_conflict use_column
begin
    return query
    with book as (select snap, totals from $schema.books),
    new as (
        select l.totals from book, $schema.ledger l where l.xid >= pg_snapshot_xmax(book.snap)
        union all
        select l.totals from book, pg_snapshot_xip(book.snap) x join $schema.ledger l on l.xid = x
    )
    select t.key, sum(t.value::bigint)::bigint
    from (select totals from new where totals is not null union all select totals from book) a, jsonb_each_text(a.totals) t
    group by t.key;
end $$;

-- unfolded: the rows of the ledger that no fold has added up.
create function $schema.unfolded_$version() returns setof $schema.ledger language plpgsql stable $planner as $$
#variable_conflict use_column
begin
    return query
    select l.* from $schema.books b, $schema.ledger l where l.xid >= pg_snapshot_xmax(b.snap)
    union all
    select l.* from $schema.books b, pg_snapshot_xip(b.snap) x join $schema.ledger l on l.xid = x;
end $$;
