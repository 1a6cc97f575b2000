-- common.sql: what the other functions share. All functions have the version of the tables in their names: a program of another version
-- finds none of them, and says so. `if f() is null then null; end if` does what `perform f()` does, as an expression: a tenth of the cost.

-- now_us: the server's clock, microseconds. As a double it is exact until the year 2106, and costs less than a numeric.
create function $schema.now_us() returns bigint language sql volatile as $$
    select (date_part('epoch', clock_timestamp()) * 1000000)::bigint
$$;

-- view: the store's time: the clock's, unless that was set back.
create function $schema.view_$version() returns bigint language sql volatile as $$
    select greatest($schema.now_us(), last_value) from $schema.clock
$$;

-- step: begin a step; return the store's time. The sequence `clock` is raised about once a second: it shows when the server's clock was
-- set back. The rules rely on READ COMMITTED: once it has a lock, a statement must see what other transactions committed.
-- p_inside: in a transaction of a user's, see enqueue.
create function $schema.step_$version(p_inside boolean default false) returns bigint language plpgsql volatile as $$
declare
    v_now bigint := $schema.now_us();
    v_mark bigint;
begin
    if not p_inside and current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'the isolation level is %', current_setting('transaction_isolation') using errcode = 'LW003';
    end if;
    v_mark := coalesce(pg_sequence_last_value('$schema.clock'), 1);  -- not a select: that costs ten times as much
    if v_now > v_mark + 1000000 then
        perform setval('$schema.clock', v_now);
    end if;
    return greatest(v_now, v_mark);
end $$;

create function $schema.lane_key(p_queue text, p_lane text) returns bigint language sql immutable as $$
    select hashtextextended(p_lane, hashtextextended(p_queue, 76))
$$;

-- is_free: whether no session holds this lock of the store. It is taken and released in one expression: a call that is cancelled
-- does not leave it taken.
create function $schema.is_free_$version(p_number integer) returns boolean language sql volatile as $$
    select pg_try_advisory_lock(hashtextextended('$schema', p_number)) and pg_advisory_unlock(hashtextextended('$schema', p_number))
$$;

-- next_token: grows even if the server crashes and its sequence falls back.
create function $schema.next_token() returns bigint language sql volatile as $$
    select ((extract(epoch from clock_timestamp()) * 1000)::bigint << 22) | (nextval('$schema.token') & 4194303)
$$;

-- check_primary: raise an error on a replica. Called before an unlogged table is read: a replica cannot read it, and its own
-- error would not say why.
create function $schema.check_primary() returns void language plpgsql volatile as $$
begin
    if pg_is_in_recovery() then
        raise exception 'this server is a replica' using errcode = '25006';
    end if;
end $$;

-- turn: begin a transaction of several statements, planned as those of the functions are; return the store's time, and its part in a
-- copy if that has closed it. No copy can close or open the store until the transaction ends.
create function $schema.turn_$version(out now bigint, out moved text) language plpgsql volatile as $$
begin
    if $schema.check_primary() is null then null; end if;
    perform pg_advisory_xact_lock_shared(hashtextextended('$schema', 82));
    perform pg_advisory_xact_lock_shared(hashtextextended('$schema', 83));  -- as a push: it may give jobs new places, see quiet
    perform set_config(s, 'off', true)
    from unnest('{enable_seqscan,enable_bitmapscan,enable_hashjoin,enable_mergejoin,jit}'::text[]) s;
    now := $schema.step_$version();
    select m.move into moved from $schema.meta m where m.closed;
end $$;

-- enrol: return the number that a worker's exchanges must carry (see fence), the store's part in a copy if that has closed it,
-- and when the server was started.
create function $schema.enrol_$version(p_worker text, out epoch bigint, out moved text, out started text) language plpgsql volatile as $$
begin
    if $schema.check_primary() is null then null; end if;
    perform pg_advisory_xact_lock_shared(hashtextextended('$schema', 82));
    insert into $schema.fence as f (worker, epoch) values (p_worker, nextval('$schema.token'))
    on conflict (worker) do update set worker = excluded.worker
    returning f.epoch into epoch;
    started := pg_postmaster_start_time()::text;
    select m.move into moved from $schema.meta m where m.closed;
end $$;

-- lock_lanes: a transaction that may wait takes the locks of all its lanes in one call and one order, so that no two wait for each other.
create function $schema.lock_lanes(p_queues text[], p_lanes text[]) returns void language plpgsql volatile as $$
declare
    v_key bigint;
begin
    if cardinality(p_lanes) = 1 then
        if pg_advisory_xact_lock($schema.lane_key(p_queues[1], p_lanes[1])) is null then null; end if;
        return;
    end if;
    for v_key in select distinct $schema.lane_key(q, l) from unnest(p_queues, p_lanes) u(q, l) order by 1 loop
        if pg_advisory_xact_lock(v_key) is null then null; end if;
    end loop;
end $$;

-- begin_exchange: lock the worker, and the lanes of what it settles; return the store's time. Raise LW001 if p_epoch is not the
-- worker's current number (see fence): the exchange then changes nothing.
create function $schema.begin_exchange_$version(p_worker text, p_epoch bigint, p_queues text[], p_lanes text[])
returns bigint language plpgsql volatile as $$
begin
    if $schema.check_primary() is null then null; end if;
    if pg_advisory_xact_lock_shared(hashtextextended(p_worker, 77)) is null then null; end if;
    if not exists (select 1 from $schema.fence where worker = p_worker and epoch = p_epoch) then
        raise exception 'another epoch' using errcode = 'LW001';
    end if;
    if cardinality(p_lanes) > 0 and $schema.lock_lanes(p_queues, p_lanes) is null then null; end if;
    return $schema.step_$version();
end $$;

-- hold: lock units that are about to be changed: first their lanes, then their rows, each in one order.
create function $schema.hold_$version(p_ids text[]) returns void language plpgsql volatile $planner as $$
begin
    perform $schema.lock_lanes(array_agg(queue), array_agg(lane))
    from $schema.job where id = any (p_ids) and lane is not null and side is null and score is null;
    perform 1 from (select id from $schema.job where id = any (p_ids) order by id for update) held;
end $$;

-- take_claims: lock the lanes that a worker holds, and make all its exchanges that are still on their way fail. The caller then
-- reads and locks the worker's claims, and skips rows that another transaction has locked. If p_keep is not null, this call first
-- waits for the row locks of all claims except those to keep, since no later call would give the others back.
create function $schema.take_claims_$version(p_worker text, p_keep bigint[]) returns void language plpgsql volatile $planner as $$
begin
    perform pg_advisory_xact_lock(hashtextextended(p_worker, 77));
    delete from $schema.fence where worker = p_worker;
    perform $schema.lock_lanes(array_agg(queue), array_agg(lane))
    from $schema.job where state = $running and worker = p_worker and lane is not null and side is null;
    if p_keep is not null then
        perform 1 from (
            select id from $schema.job where state = $running and worker = p_worker and token <> all (p_keep) order by id for update
        ) held;
    end if;
end $$;

-- push_lanes: insert lanes of a collector, or lock those that are there, one after the other in the order of their ids. Return the
-- sequence numbers of the new ones.
create function $schema.push_lanes_$version(
    p_seqs bigint[], p_ids text[], p_queues text[], p_tasks text[], p_lanes text[], p_dues bigint[], p_states smallint[], p_now bigint
) returns setof bigint language plpgsql volatile $planner as $$
declare
    v_lane record;
begin
    for v_lane in
        select * from unnest(p_seqs, p_ids, p_queues, p_tasks, p_lanes, p_dues, p_states) u(seq, id, queue, task, lane, due, state)
        order by u.id collate "C"
    loop
        loop
            insert into $schema.job (seq, id, queue, task, lane, rank, place, due, state, enqueued, side, body)
            values (v_lane.seq, v_lane.id, v_lane.queue, v_lane.task, v_lane.lane, 0, v_lane.due, v_lane.due, v_lane.state, p_now, 0, '')
            on conflict (id) do nothing;
            if found then
                return next v_lane.seq;
                exit;
            end if;
            perform 1 from $schema.job where id = v_lane.id for update;
            exit when found;
        end loop;
    end loop;
end $$;

-- line_head: the next job of a lane: the first by place of its parked and due jobs. A parked job counts as due: it was due when
-- it was parked. p_from: no job of the lane has an earlier place. Without it this would read the dead rows of all jobs that left
-- the lane, as long as an old snapshot is in use anywhere.
--
-- If this finds a job, all visible jobs of the lane have its place or a later one. A job that is not visible was not committed
-- when `quiet` was read: no push was open at that time, so the job's place is not earlier. p_from for the next call (`line_from`) is
-- the job's place if that is before `quiet`, else a time just before `quiet`. In the first case all other jobs of the lane come after
-- this one, also those with its place: p_seq then is its sequence number. Without it the next call would read the dead rows of all
-- jobs that were enqueued together, since these have one place.
create function $schema.line_head_$version(p_now bigint, p_queue text, p_lane text, p_from bigint, p_seq bigint)
returns table (seq bigint, state smallint, due bigint, place bigint, expires bigint, parked boolean, tid tid) language sql stable as $$
    select j.seq, j.state, j.due, j.place, j.expires, j.state = $blocked or exists (
        select 1 from $schema.job p where p.queue = p_queue and p.lane = p_lane and p.state = $blocked
        and (p.place, p.seq) >= (p_from, p_seq)), j.ctid
    from $schema.job j
    where j.queue = p_queue and j.lane = p_lane and j.state <= $blocked and j.side is null and (j.place, j.seq) >= (p_from, p_seq)
    and (j.state = $blocked or j.due <= p_now)
    order by j.place, j.seq limit 1
$$;

-- quiet: the last time, as far as known, at which no push was open and the inbox was empty: a job that was not visible then has a
-- later place.
create function $schema.quiet_$version(p_now bigint) returns bigint language plpgsql volatile as $$
declare
    v_quiet bigint := coalesce(pg_sequence_last_value('$schema.quiet'), 0);
begin
    -- Each push holds one of these locks, and reads the clock after it got it. The jobs of those that have committed are visible to
    -- the next statement, which has a new snapshot. A job of the inbox will join the others with the place that it got there.
    if p_now > v_quiet + 50000 and $schema.is_free_$version(83) and $schema.is_free_$version(85) then
        if not exists (select 1 from $schema.inbox) then
            perform setval('$schema.clock', p_now), setval('$schema.quiet', p_now);
            return p_now;
        end if;
    end if;
    return v_quiet;
end $$;

-- let_out: pass on lanes whose holders have left, see hold_lanes. The caller holds the locks of the lanes.
create function $schema.let_out_$version(p_now bigint, p_queues text[], p_lanes text[]) returns void language plpgsql volatile as $$
declare
    v_quiet bigint := $schema.quiet_$version(p_now);
    v_seqs bigint[];
    v_states smallint[];
    v_parked boolean[];
begin
    select array_agg(h.seq), array_agg(h.state), array_agg(h.parked) into v_seqs, v_states, v_parked
    from (select distinct q as queue, l as lane from unnest(p_queues, p_lanes) u(q, l)) u,
    lateral $schema.line_head_$version(p_now, u.queue, u.lane, 0, 0) h;
    if $schema.hold_lanes_$version(p_now, v_quiet, v_seqs, v_states, v_parked) is null then null; end if;
end $$;

-- hold_lanes: each of these jobs is the next of its lane. If the lane has parked jobs, the job becomes its holder, and ready. In
-- a lane without parked jobs, the walk finds the next job. p_states: the states in which the jobs are counted. Return whether any
-- became a holder.
create function $schema.hold_lanes_$version(
    p_now bigint, p_quiet bigint, p_seqs bigint[], p_states smallint[], p_parked boolean[]
) returns boolean language plpgsql volatile as $$
begin
    if p_seqs is null or true <> all (p_parked) then
        return false;
    end if;
    with held as (
        update $schema.job j set state = $ready, holds = 1, line_from = least(p_quiet - 1, j.place)
        from unnest(p_seqs, p_states, p_parked) u(seq, state, parked) where j.seq = u.seq and u.parked returning j.queue, u.state as before
    )
    insert into $schema.ledger (at, queue, ready, blocked, scheduled, retrying)
    select p_now, queue, count(*) filter (where before <> $ready), - count(*) filter (where before = $blocked),
           - count(*) filter (where before = $scheduled), - count(*) filter (where before = $retrying)
    from held group by queue;
    return true;
end $$;

-- sleeps: whether a worker sleeps: each sleeping worker holds the lock 79 in shared mode. To be called after a commit, or by a
-- push that holds the lock 85 until it commits: a worker that goes to sleep takes the lock 79, and looks again once all such
-- pushes have committed.
create function $schema.sleeps_$version() returns boolean language sql volatile as $$
    select not $schema.is_free_$version(79)
$$;

-- ring: wake sleeping workers, if any sleeps. To be called after a commit.
create function $schema.ring_$version() returns void language plpgsql volatile as $$
begin
    if $schema.sleeps_$version() then
        perform pg_notify('$schema', '');
    end if;
end $$;

-- error_has: whether the kind or the message of the last error contains a text. Errors are JSON, but other programs may write them.
create function $schema.error_has(p_errors bytea, p_text text) returns boolean language plpgsql immutable as $$
declare
    v_last jsonb;
begin
    v_last := convert_from(p_errors, 'UTF8')::jsonb -> -1;
    return position(p_text in v_last ->> 'kind') > 0 or position(p_text in v_last ->> 'message') > 0;
exception when others then
    return false;
end $$;
