-- restore.sql: the tables came out of a dump.
-- The ledger and the books speak of transactions by their ids, and those of another cluster mean nothing here: the next ids may be lower,
-- or the same. So before the ledger is added up the first time, all is counted anew.

-- is_original: whether the tables were made here, or were counted anew since they came. The last condition holds for all that were made here.
create function $schema.is_original_$version() returns boolean language sql stable as $$
    select exists (
        select 1 from $schema.origin o, $schema.books b
        where o.xmin = o.xid::xid and o.tableoid = o.relation and pg_snapshot_xmax(b.snap) <= pg_snapshot_xmax(pg_current_snapshot()))
$$;

-- recount: count anew if the tables came out of a dump, and nobody else does it just now. Return whether they are as if made here.
--
-- Jobs are counted one by one, as of the snapshot that is noted in the books: steps that it does not show are added later, as after a fold. So
-- nobody has to wait. Of the ledger all rows leave. What they say of totals, runs and arrivals is written anew, as of this transaction, if
-- it is not in the books: rows that came with the dump and were not added up there; and all rows of steps that were done here since. Such a
-- row names a transaction after the one that restored the origin, and was written by that transaction, or in a savepoint of it, which has a
-- later id. A row that came was written when the origin was restored, or before.
--
-- The inbox needs nothing: if its rows name a transaction that enqueues here, jobs of the same lane go there too, and join behind them.
--
-- Its owner's rights are enough: whoever opens the store first calls it.
create function $schema.recount_$version() returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set jit = off as $$
begin
    if $schema.is_original_$version() then
        return true;
    end if;
    if current_setting('transaction_read_only')::boolean or not pg_try_advisory_xact_lock(hashtextextended('$schema', 80)) then
        return false;
    end if;
    if $schema.is_original_$version() then
        return true;
    end if;
    with now as materialized (select pg_current_snapshot() as snap, pg_current_xact_id() as me),
    gone as (
        delete from $schema.ledger l returning l.*, l.xmin as written
    ), kept as (
        insert into $schema.ledger (at, queue, task, arrived, totals, runs, number)
        select g.at, g.queue, g.task, g.arrived, g.totals, g.runs, g.number
        from gone g cross join now cross join $schema.books b left join $schema.origin o on true
        where not pg_visible_in_snapshot(g.xid, b.snap)
        or g.xid < pg_snapshot_xmax(now.snap) and age(g.xid::xid) >= age(g.written) and age(g.xid::xid) < age(o.xmin)
        order by g.at, g.xid
    ), counts as (
        insert into $schema.counted as old (queue, scheduled, ready, retrying, blocked, running, dead)
        select queue, count(*) filter (where state = $scheduled), count(*) filter (where state = $ready), count(*) filter (where state = $retrying),
               count(*) filter (where state = $blocked), count(*) filter (where state = $running), count(*) filter (where state = $dead)
        from (select queue, state from $schema.job union all select queue, null from $schema.counted) j group by queue
        on conflict (queue) do update set scheduled = excluded.scheduled, ready = excluded.ready, retrying = excluded.retrying,
            blocked = excluded.blocked, running = excluded.running, dead = excluded.dead
        returning old.queue
    ), known as (
        insert into $schema.queue (name) select queue from counts on conflict (name) do nothing
    )
    -- This transaction's own rows are not in a snapshot of its own, nor among those in progress: they are to be added up.
    update $schema.books set cleared = pg_snapshot_xmin(now.snap), snap = format(
        '%s:%s:%s', pg_snapshot_xmin(now.snap), pg_snapshot_xmax(now.snap), (
            select string_agg(x::text, ',' order by x)
            from (select pg_snapshot_xip(now.snap) union select now.me where now.me < pg_snapshot_xmax(now.snap)) open(x)))::pg_snapshot
    from now;
    delete from $schema.origin;
    insert into $schema.origin (xid, relation) values (pg_current_xact_id(), '$schema.origin'::regclass);
    return true;
end $$;
