-- push.sql: insert jobs. A push never looks at the lanes of its jobs.

-- enter_queue: called before a transaction pushes jobs into a queue. The lock keeps others from changing the queue's kind (jobs,
-- or lanes of a collector) until this transaction ends.
create function $schema.enter_queue_$version(p_queue text, p_inside boolean) returns void language plpgsql volatile as $$
declare
    v_collects boolean;
begin
    if pg_advisory_xact_lock_shared(hashtextextended(p_queue, hashtextextended('$schema', 78))) is null then null; end if;
    select collects into v_collects from $schema.queue where name = p_queue;
    if v_collects then
        raise exception '%', p_queue using errcode = 'LW004';
    elsif v_collects is null and not p_inside then
        insert into $schema.queue (name) values (p_queue) on conflict (name) do nothing;
    end if;
end $$;

-- is_first: whether a job that waits until p_due is due before all others of its queue.
create function $schema.is_first_$version(p_queue text, p_due bigint) returns boolean language plpgsql volatile $planner as $$
begin
    return not exists (
        select 1 from $schema.job where queue = p_queue and state = any ('{$scheduled,$retrying}') and due < p_due);
end $$;

-- push_one: what push does for most jobs: insert one, with an id of Laneway's own. Return whether a sleeping worker must be
-- woken; null: nothing was inserted, and push must do it. p_known: the caller has pushed into this queue before. The function has
-- few statements, calls few functions and sets few options: each costs microseconds.
create function $schema.push_one_$version(
    p_id text, p_body bytea, p_queue text, p_task text, p_lane text, p_rank smallint, p_delay bigint, p_at bigint, p_expires bigint,
    p_known boolean, p_unique text default null, p_end_key text default null, p_inside boolean default false) returns boolean
language plpgsql volatile $generic $patience as $$
declare
    v_now bigint;
    v_due bigint;
begin
    if pg_current_xact_id() is null then null; end if;  -- the locks and the clock are as in push
    if pg_advisory_xact_lock_shared(hashtextextended('$schema', case when p_inside then 83 else 85 end)) is null then null; end if;
    if pg_advisory_xact_lock_shared(hashtextextended(p_queue, hashtextextended('$schema', 78))) is null then null; end if;
    -- Read after the locks: a transaction that sets it holds them exclusively.
    if not p_known or pg_sequence_last_value('$schema.special') is not null then
        if not exists (select 1 from $schema.queue, $schema.meta where name = p_queue and not collects and not closed) then
            return null;
        end if;
    end if;
    v_now := $schema.now_us();
    if coalesce(pg_sequence_last_value('$schema.clock') not between v_now - 1000000 and v_now, true)
        or current_setting('transaction_isolation') <> 'read committed' then  -- else step has nothing to do
        v_now := $schema.step_$version(p_inside);
    end if;
    v_due := greatest(p_at, v_now + p_delay);
    insert into $schema.job (seq, id, queue, task, lane, rank, place, due, state, enqueued, unique_key, end_key, expires, body)
    values (nextval('$schema.seq'), p_id, p_queue, p_task, p_lane, p_rank, v_due, v_due,
            case when v_due <= v_now then $ready else $scheduled end, v_now, p_unique, p_end_key,
            case when p_expires > 0 then v_due + p_expires end, p_body)
    on conflict do nothing;
    if not found then
        return null;
    end if;
    insert into $schema.ledger (at, queue, task, arrived, ready, scheduled, totals)
    values (v_now, p_queue, p_task, 1, (v_due <= v_now)::integer, (v_due > v_now)::integer, '{"enqueued": 1}');
    return not p_inside and $schema.sleeps_$version() and (v_due <= v_now or $schema.is_first_$version(p_queue, v_due));
end $$;

-- push: insert jobs, in order. Return null if all were inserted, else for each job null or the id of the existing job that
-- prevented it; and whether a sleeping worker must be woken: a job is due, or will be due before all others of its queue. Arrays
-- with one element apply to all jobs. p_replaces: some ids were chosen by the caller, and records of finished jobs may have them.
-- p_inside: the call is part of a user's transaction, which may stay open for long. It wakes no worker, and writes no row of
-- `queue`, since other pushes would wait for that row's lock. Workers find a new queue when they have added the ledger up.
create function $schema.push_$version(
    p_ids text[], p_bodies bytea[], p_queues text[], p_tasks text[], p_lanes text[], p_ranks smallint[], p_delays bigint[],
    p_ats bigint[], p_uniques text[], p_end_keys text[], p_expires bigint[], p_replaces boolean,
    p_inside boolean,
    out prevented text[], out rings boolean) language plpgsql volatile $planner $patience as $$
declare
    v_now bigint;
    v_number integer := cardinality(p_ids);
    v_alike boolean := cardinality(p_queues) = 1;
    v_sorted boolean;
    v_given bigint[];
    v_in bigint[];
    v_ids text[];
    v_later text[];
    v_due bigint;
begin
    if v_number = 1 and not p_replaces then
        rings := $schema.push_one_$version(
            p_ids[1], p_bodies[1], p_queues[1], p_tasks[1], p_lanes[1], p_ranks[1], p_delays[1], p_ats[1], p_expires[1], false,
            p_uniques[1], p_end_keys[1], p_inside);
        if rings is not null then
            return;
        end if;
    end if;
    -- Assigned before the clock is read: jobs that a snapshot does not show have later places than the snapshot's time.
    if pg_current_xact_id() is null then null; end if;
    -- Until this transaction ends, no copy can close the store, and `quiet` does not advance. For lock 85 see also `sleeps`.
    if pg_advisory_xact_lock_shared(hashtextextended('$schema', case when p_inside then 83 else 85 end)) is null then null; end if;
    if exists (select 1 from $schema.meta where closed) then
        raise exception 'a copy has closed the store' using errcode = 'LW006';
    end if;
    v_now := $schema.step_$version(p_inside);
    perform $schema.enter_queue_$version(q, p_inside) from (select distinct q from unnest(p_queues) q) q;
    -- All transactions insert keys in one order, so that no two wait for each other. Not if an id comes twice: then the first job
    -- counts.
    v_sorted := not v_alike and (select count(distinct id) = v_number from unnest(p_ids) id);
    with given as materialized (
        select u.id, u.body, nextval('$schema.seq') as seq,
               case when v_alike then p_queues[1] else u.queue end as queue, case when v_alike then p_tasks[1] else u.task end as task,
               case when v_alike then p_lanes[1] else u.lane end as lane, case when v_alike then p_ranks[1] else u.rank end as rank,
               greatest(case when v_alike then p_ats[1] else u.at end, v_now + case when v_alike then p_delays[1] else u.delay end) as due,
               u.unique_key, u.end_key, case when v_alike then p_expires[1] else u.expires end as expires
        from unnest(p_ids, p_bodies, p_queues, p_tasks, p_lanes, p_ranks, p_delays, p_ats, p_uniques, p_end_keys, p_expires)
             u(id, body, queue, task, lane, rank, delay, at, unique_key, end_key, expires)
    ), pushed as (
        insert into $schema.job (seq, id, queue, task, lane, rank, place, due, state, enqueued, unique_key, end_key, expires, body)
        select seq, id, queue, task, lane, rank, due, due, case when due <= v_now then $ready else $scheduled end, v_now, unique_key, end_key,
               case when expires > 0 then due + expires end, body
        from given order by case when v_sorted then unique_key end, case when v_sorted and p_replaces and unique_key is null then id end, seq
        on conflict do nothing
        returning seq, id, queue, task, state, due
    ), counted as (
        insert into $schema.ledger (at, queue, task, arrived, ready, scheduled, totals)
        select v_now, queue, task, count(*), count(*) filter (where state = $ready), count(*) filter (where state = $scheduled),
               jsonb_build_object('enqueued', count(*))
        from pushed group by queue, task
    )
    select (select array_agg(seq order by seq) from given), array_agg(seq), array_agg(id) filter (where p_replaces),
           coalesce(bool_or(state = $ready), false), array_agg(queue) filter (where state = $scheduled), min(due)
    into v_given, v_in, v_ids, rings, v_later, v_due from pushed;
    rings := not p_inside and $schema.sleeps_$version() and (rings or exists (
        select 1 from unnest(v_later) q where $schema.is_first_$version(q, v_due)));
    if p_replaces then
        delete from $schema.finished where id = any (v_ids);
    end if;
    if coalesce(cardinality(v_in), 0) = v_number then
        return;
    end if;
    prevented := array(
        select case when u.seq <> all (coalesce(v_in, '{}')) then coalesce(
            (select j.id from $schema.job j where j.id = u.id and j.seq < u.seq),
            (select j.id from $schema.job j where j.unique_key = u.key and j.seq < u.seq), '')
        end
        from unnest(p_ids, p_uniques, v_given) with ordinality u(id, key, seq, at) order by u.at
    );
end $$;
