-- restore.sql: count anew after the tables were restored from a dump.
-- The ledger and the books contain transaction ids. Ids of another database cluster mean nothing here: the next ids of this one
-- may be lower, or equal. So everything is counted anew before the ledger is added up for the first time.

-- is_original: whether the tables were created in this cluster, or were counted anew since the restore. The last condition is
-- true for all tables that were created here.
create function $schema.is_original_$version() returns boolean language sql stable as $$
    select exists (
        select 1 from $schema.origin o, $schema.books b
        where o.xmin = o.xid::xid and o.tableoid = o.relation and pg_snapshot_xmax(b.snap) <= pg_snapshot_xmax(pg_current_snapshot()))
$$;

-- recount: count anew if the tables were restored from a dump, and no other transaction does it now. Return whether is_original
-- holds.
--
-- Jobs are counted row by row, in the snapshot that is then written to the books. Steps that this snapshot does not show are
-- added by the next fold: so no other transaction has to wait. All rows of the ledger are deleted. Their totals, runs and
-- arrivals are inserted again, as rows of this transaction, unless the books include them already. Two kinds of rows are inserted
-- again: restored rows that were not added up before the dump, and rows of steps done here since the restore. A row of the second
-- kind has the id of a transaction that began after the one that restored the origin, and was written by that transaction or by a
-- savepoint of it, which has a higher id. A restored row was written when the origin was restored, or before.
--
-- The inbox needs no change. If the id of a restored row is equal to that of a transaction that enqueues here, then jobs of the
-- row's lane go to the inbox too, and join behind it.
--
-- The first program that opens the store calls this function: it runs with the rights of its owner (security definer).
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
    -- This transaction is added to the snapshot's list of those in progress, so that the next fold adds up its rows: its own
    -- snapshot does not list it.
    update $schema.books set cleared = pg_snapshot_xmin(now.snap), snap = format(
        '%s:%s:%s', pg_snapshot_xmin(now.snap), pg_snapshot_xmax(now.snap), (
            select string_agg(x::text, ',' order by x)
            from (select pg_snapshot_xip(now.snap) union select now.me where now.me < pg_snapshot_xmax(now.snap)) open(x)))::pg_snapshot
    from now;
    delete from $schema.origin;
    insert into $schema.origin (xid, relation) values (pg_current_xact_id(), '$schema.origin'::regclass);
    return true;
end $$;
