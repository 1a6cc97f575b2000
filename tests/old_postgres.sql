SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;
CREATE SCHEMA laneway;
CREATE TYPE laneway.claimed_v4 AS (
	part integer,
	token bigint,
	id text,
	task text,
	queue text,
	lane text,
	attempt integer,
	enqueued bigint,
	due bigint,
	place bigint,
	seq bigint,
	lost text,
	body bytea,
	line_from bigint
);
CREATE FUNCTION laneway.begin_exchange_v4(p_worker text, p_epoch bigint, p_queues text[], p_lanes text[]) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
begin
    if laneway.check_primary() is null then null; end if;
    if pg_advisory_xact_lock_shared(hashtextextended(p_worker, 77)) is null then null; end if;
    if not exists (select 1 from laneway.fence where worker = p_worker and epoch = p_epoch) then
        raise exception 'another epoch' using errcode = 'LW001';
    end if;
    if cardinality(p_lanes) > 0 and laneway.lock_lanes(p_queues, p_lanes) is null then null; end if;
    return laneway.step_v4();
end $$;
CREATE FUNCTION laneway.check_jobs_v4(p_jobs json) RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    AS $_$
declare
    v_job json;
    v_wrong text;
begin
    if json_typeof(p_jobs) <> 'array' then
        raise exception 'laneway.enqueue takes a job as JSON, {"task": …}, or an array of jobs' using errcode = '22023';
    end if;
    for v_job in select * from json_array_elements(p_jobs) loop
        if json_typeof(v_job) <> 'object' then
            raise exception 'laneway.enqueue: % is no job: write {"task": …}', v_job using errcode = '22023';
        end if;
        select format('has no field "%s"; it has: task, args, kwargs, queue, lane, priority, run_after, expires, unique, unique_until, id', k)
        into v_wrong from json_object_keys(v_job) k
        where k <> all ('{task,args,kwargs,queue,lane,priority,run_after,expires,unique,unique_until,id}') limit 1;
        v_wrong := case
            when v_wrong is not null then v_wrong
            when v_job ->> 'task' is null or v_job ->> 'task' !~ '^[^[:cntrl:] ]{1,200}$' then 'task: name the task, as "shop.ship"'
            when json_typeof(v_job -> 'args') <> 'array' then 'args: use an array of positional arguments'
            when json_typeof(v_job -> 'kwargs') <> 'object' then 'kwargs: use an object of arguments by name'
            when v_job ->> 'queue' !~ '^[A-Za-z0-9_.:-]{1,100}$' then 'queue: use 1 to 100 letters, digits and - _ . :'
            when v_job ->> 'id' !~ '^[A-Za-z0-9_-]{1,100}$' then 'id: use 1 to 100 letters, digits, - and _'
            when v_job ->> 'lane' !~ '^[^[:cntrl:]]+$' or length(v_job ->> 'lane') > 500 then 'lane: use 1 to 500 printable characters'
            when v_job ->> 'unique' !~ '^[^[:cntrl:]]+$' or length(v_job ->> 'unique') > 500 then 'unique: use 1 to 500 printable characters'
            when v_job ->> 'unique_until' not in ('claim', 'end') then 'unique_until: use "claim" or "end"'
            when v_job ->> 'unique_until' is not null and v_job ->> 'unique' is null then 'unique_until goes with unique'
            when v_job ->> 'priority' !~ '^-?(100|[0-9]{1,2})$' then 'priority: use a whole number from -100 to 100'
            when v_job ->> 'lane' is not null and coalesce(v_job ->> 'priority', '0') <> '0'
                then 'lane and priority together: a lane is in order, so its jobs have no priority'
            when json_typeof(v_job -> 'run_after') not in ('number', 'string', 'null')
                or json_typeof(v_job -> 'run_after') = 'number' and (v_job ->> 'run_after')::numeric not between 0 and 316224000
                then 'run_after: use seconds, or a time such as "2027-01-31T12:00:00Z"'
            when json_typeof(v_job -> 'expires') not in ('number', 'null') or (v_job ->> 'expires')::numeric not between 0.000001 and 1e9
                then 'expires: use seconds, more than 0'
            when octet_length(coalesce(v_job ->> 'args', '') || coalesce(v_job ->> 'kwargs', '')) > 1000000
                then 'the arguments are larger than 1,000,000 bytes: pass a reference'
        end;
        if v_wrong is not null then
            raise exception 'laneway.enqueue: %', v_wrong using errcode = '22023';
        end if;
    end loop;
end $_$;
CREATE FUNCTION laneway.check_primary() RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
    if pg_is_in_recovery() then
        raise exception 'this server is a replica' using errcode = '25006';
    end if;
end $$;
CREATE FUNCTION laneway.counts_v4(p_now bigint) RETURNS TABLE(queue text, scheduled bigint, ready bigint, retrying bigint, blocked bigint, running bigint, dead bigint)
    LANGUAGE plpgsql STABLE
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
#variable_conflict use_column
begin
    return query
    with book as (select snap from laneway.books),
    new as (
        select l.* from book, laneway.ledger l where l.xid >= pg_snapshot_xmax(book.snap)
        union all
        select l.* from book, pg_snapshot_xip(book.snap) x join laneway.ledger l on l.xid = x
    ), sums as (
        select queue, sum(scheduled) as scheduled, sum(ready) as ready, sum(retrying) as retrying, sum(blocked) as blocked,
               sum(running) as running, sum(dead) as dead
        from (
            select queue, scheduled, ready, retrying, blocked, running, dead from laneway.counted
            union all
            select queue, scheduled, ready, retrying, blocked, running, dead from new where queue is not null
        ) a
        group by queue
    )
    select s.queue, (s.scheduled - coalesce(l.scheduled, 0))::bigint, (s.ready + coalesce(l.scheduled + l.retrying, 0))::bigint,
           (s.retrying - coalesce(l.retrying, 0))::bigint, s.blocked::bigint, s.running::bigint, s.dead::bigint
    from sums s left join lateral (
        select count(*) filter (where j.state = 0) as scheduled, count(*) filter (where j.state = 2) as retrying
        from laneway.job j
        where (s.scheduled > 0 or s.retrying > 0) and j.queue = s.queue and j.state = any ('{0,2}') and j.due <= p_now
    ) l on true;
end $$;
CREATE FUNCTION laneway.enqueue(p_jobs text) RETURNS TABLE(id text, created boolean)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET lock_timeout TO '1500ms'
    AS $_$
#variable_conflict use_column
declare
    v_given json := p_jobs::json;
    v_now bigint;
    v_queue record;
    v_collects boolean;
    v_replaces boolean;
    v_looks boolean;             -- some jobs must be compared with others
    v_waits boolean[];           -- for each job: whether it goes to the inbox
    v_ids text[];
    v_tasks text[];
    v_queues text[];
    v_lanes text[];
    v_ranks smallint[];
    v_delays bigint[];
    v_ats bigint[];
    v_uniques text[];
    v_end_keys text[];
    v_expires bigint[];
    v_bodies bytea[];
    v_gathers text[];
    v_all text[];
    v_prevented text[];          -- of the jobs that are inserted here: the id of the existing job that prevented each
begin
    if json_typeof(v_given) = 'object' and v_given ->> 'version' is not null then
        if v_given ->> 'version' <> '4' then
            raise exception 'the functions of Laneway have version 4, and this program wants %', v_given ->> 'version' using errcode = 'LW008';
        end if;
        v_given := v_given -> 'jobs';
    else
        if json_typeof(v_given) = 'object' then
            v_given := json_build_array(v_given);
        end if;
        perform laneway.check_jobs_v4(v_given);
    end if;
    perform pg_current_xact_id();
    perform pg_advisory_xact_lock_shared(hashtextextended('laneway', 83));
    if current_setting('transaction_isolation') <> 'read committed' then
        -- This transaction's snapshot may be older than a copy that has closed or opened the store since: the row lock then
        -- raises a serialization failure.
        perform 1 from laneway.meta for share;
    end if;
    if exists (select 1 from laneway.meta where closed) then
        raise exception 'a copy has closed the store' using errcode = 'LW006';
    end if;
    v_now := laneway.step_v4(true);
    select array_agg(coalesce(r.id, gen_random_uuid()::text)), coalesce(bool_or(r.id !~ '^[0-9a-hjkmnp-tv-z]{20}$'), false),
           array_agg(r.task), array_agg(coalesce(r.queue, 'default')), array_agg(r.lane), array_agg(- coalesce(r.priority, 0)),
           array_agg(case json_typeof(r.run_after) when 'number' then round((r.run_after #>> '{}')::numeric * 1000000)::bigint else 0 end),
           array_agg(case json_typeof(r.run_after)
               when 'string' then round(extract(epoch from (r.run_after #>> '{}')::timestamptz)::numeric * 1000000)::bigint else 0 end),
           array_agg(r."unique"), array_agg(case when r.unique_until = 'end' then r."unique" end), array_agg(round(coalesce(r.expires, 0) * 1000000)::bigint),
           array_agg(convert_to(
               coalesce(r.body, '[' || coalesce(r.args::text, '[]') || ',' || coalesce(r.kwargs::text, '{}') || ']'), 'UTF8')),
           array_agg(r.gather::text), bool_or(r."unique" is not null or r.gather is not null)
    into v_ids, v_replaces, v_tasks, v_queues, v_lanes, v_ranks, v_delays, v_ats, v_uniques, v_end_keys, v_expires, v_bodies, v_gathers, v_looks
    from json_to_recordset(v_given) r(
        id text, task text, queue text, lane text, priority integer, run_after json, expires numeric, "unique" text, unique_until text, args json,
        kwargs json, body text, gather json);
    if v_ids is null then
        return;
    end if;
    if v_looks or exists (select 1 from laneway.inbox where xid = pg_current_xact_id()) then
        v_waits := array(
            select u.key is not null or u.gather is not null or u.lane is not null and (
                bool_or(u.key is not null) over (partition by u.queue, u.lane order by u.n)
                or exists (select 1 from laneway.inbox i where i.xid = pg_current_xact_id() and i.queue = u.queue and i.lane = u.lane))
            from unnest(v_queues, v_lanes, v_uniques, v_gathers) with ordinality u(queue, lane, key, gather, n) order by u.n);
        insert into laneway.inbox (id, queue, task, lane, rank, delay, at, unique_key, end_key, expires, body, gather, score)
        select v_ids[n], v_queues[n], v_tasks[n], v_lanes[n], v_ranks[n], case when v_gathers[n] is null then 0 else v_delays[n] end,
               case when v_gathers[n] is null then greatest(v_ats[n], v_now + v_delays[n]) else v_ats[n] end, v_uniques[n],
               v_end_keys[n], v_expires[n], v_bodies[n], v_gathers[n], case when v_gathers[n] is not null then
                   coalesce((v_gathers[n]::json ->> 'score')::double precision, laneway.next_score(v_now)) end
        from unnest(v_waits) with ordinality u(waits, n) where waits order by n;
        -- The lock keeps the kind of each queue (jobs or lanes) until this transaction ends.
        for v_queue in
            select q as name, bool_or(g is not null) as collects, bool_or(g is null) as has_jobs
            from unnest(v_queues, v_gathers, v_waits) u(q, g, waits) where waits group by q order by q
        loop
            perform pg_advisory_xact_lock_shared(hashtextextended(v_queue.name, hashtextextended('laneway', 78)));
            select collects into v_collects from laneway.queue where name = v_queue.name;
            if v_collects is null and v_queue.collects and current_setting('transaction_isolation') <> 'read committed' then
                v_collects := true;  -- the client has just added the queue, and this transaction's snapshot does not show it
            end if;
            if coalesce(v_collects, false) <> v_queue.collects or v_queue.collects and v_queue.has_jobs then
                raise exception '%', v_queue.name using errcode = 'LW004';
            end if;
        end loop;
        v_all := v_ids;
        select array_agg(v_ids[n]), array_agg(v_bodies[n]), array_agg(v_queues[n]), array_agg(v_tasks[n]), array_agg(v_lanes[n]),
               array_agg(v_ranks[n]), array_agg(v_delays[n]), array_agg(v_ats[n]), array_agg(v_uniques[n]),
               array_agg(v_end_keys[n]), array_agg(v_expires[n])
        into v_ids, v_bodies, v_queues, v_tasks, v_lanes, v_ranks, v_delays, v_ats, v_uniques, v_end_keys, v_expires
        from (select n from unnest(v_waits) with ordinality u(waits, n) where not waits order by n) d;
    end if;
    if v_ids is not null then
        select prevented into v_prevented from laneway.push_v4(
            v_ids, v_bodies, v_queues, v_tasks, v_lanes, v_ranks, v_delays, v_ats, v_uniques, v_end_keys, v_expires, v_replaces,
            true);
        for i in 1 .. coalesce(cardinality(v_prevented), 0) loop
            while v_prevented[i] = '' loop  -- the job that prevented it has just left the store: try again
                select prevented[1] into v_prevented[i] from laneway.push_v4(
                    v_ids[i:i], v_bodies[i:i], v_queues[i:i], v_tasks[i:i], v_lanes[i:i], v_ranks[i:i], v_delays[i:i], v_ats[i:i],
                    v_uniques[i:i], v_end_keys[i:i], v_expires[i:i], v_replaces, true);
            end loop;
        end loop;
    end if;
    if v_waits is null then
        return query select coalesce(by, u.id), by is null from unnest(v_ids, v_prevented) u(id, by);
    else
        return query
        select coalesce(v_prevented[k], u.id), case when not u.waits then v_prevented[k] is null end
        from (select a.id, a.waits, a.n, case when not a.waits then count(*) filter (where not a.waits) over (order by a.n) end as k
              from unnest(v_all, v_waits) with ordinality a(id, waits, n)) u order by u.n;
    end if;
end $_$;
CREATE FUNCTION laneway.enrol_v4(p_worker text, OUT epoch bigint, OUT moved text, OUT started text) RETURNS record
    LANGUAGE plpgsql
    AS $$
begin
    if laneway.check_primary() is null then null; end if;
    perform pg_advisory_xact_lock_shared(hashtextextended('laneway', 82));
    insert into laneway.fence as f (worker, epoch) values (p_worker, nextval('laneway.token'))
    on conflict (worker) do update set worker = excluded.worker
    returning f.epoch into epoch;
    started := pg_postmaster_start_time()::text;
    select m.move into moved from laneway.meta m where m.closed;
end $$;
CREATE FUNCTION laneway.enter_queue_v4(p_queue text, p_inside boolean) RETURNS void
    LANGUAGE plpgsql
    AS $$
declare
    v_collects boolean;
begin
    if pg_advisory_xact_lock_shared(hashtextextended(p_queue, hashtextextended('laneway', 78))) is null then null; end if;
    select collects into v_collects from laneway.queue where name = p_queue;
    if v_collects then
        raise exception '%', p_queue using errcode = 'LW004';
    elsif v_collects is null and not p_inside then
        insert into laneway.queue (name) values (p_queue) on conflict (name) do nothing;
    end if;
end $$;
CREATE FUNCTION laneway.error_has(p_errors bytea, p_text text) RETURNS boolean
    LANGUAGE plpgsql IMMUTABLE
    AS $$
declare
    v_last jsonb;
begin
    v_last := convert_from(p_errors, 'UTF8')::jsonb -> -1;
    return position(p_text in v_last ->> 'kind') > 0 or position(p_text in v_last ->> 'message') > 0;
exception when others then
    return false;
end $$;
CREATE FUNCTION laneway.exchange_v4(p_worker text, p_epoch bigint, p_tokens bigint[], p_runs text[], p_queues text[], p_lanes text[], p_wants text[], p_most integer[], p_limit integer, p_floors bigint[], p_lane_floors bigint[], p_full boolean, p_lines jsonb, p_durable boolean) RETURNS SETOF laneway.claimed_v4
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET lock_timeout TO '1500ms'
    AS $$
declare
    v_now bigint := laneway.begin_exchange_v4(p_worker, p_epoch, p_queues, p_lanes);
    v_quiet bigint := laneway.quiet_v4(v_now);
    v_refused bigint[];
    v_done integer := 0;                 -- those that left, all of one queue: these are counted together with what is claimed there
    v_done_queue text;
    v_held bigint;                       -- the earliest due time of the new holders
    v_claimed integer := 0;              -- in all
    v_more boolean := false;
    v_next_due bigint;
    v_inbox boolean;                     -- something is in the inbox
    v_cut boolean := false;              -- a walk did not begin at the front
    v_nothing bigint := 0;               -- which walks found nothing
    v_head record;                       -- of a lane whose job was done: its next, and whether nothing else is due
    v_alone boolean;
    v_from bigint;                       -- that lane's jobs have this place or a later one
    v_claim record;                      -- the next job, claimed
    v_walked bigint := pg_stat_get_xact_tuples_returned('laneway.job_due'::regclass) + pg_stat_get_xact_tuples_returned('laneway.job_due_lane'::regclass) + pg_stat_get_xact_blocks_fetched('laneway.job_due'::regclass) + pg_stat_get_xact_blocks_fetched('laneway.job_due_lane'::regclass);
    v_lined bigint := pg_stat_get_xact_tuples_returned('laneway.job_line'::regclass) + pg_stat_get_xact_tuples_returned('laneway.job_holder'::regclass);
begin
    if cardinality(p_tokens) = 1 and p_wants = p_queues and p_limit > 0 and p_most[1] > 0 then
        -- The short branch: one job of a lane was done. Usually the next job of that lane is the only one that is due, and the
        -- duration of an exchange limits the lane's speed. So this settles and claims with as few statements and variables as
        -- possible.
        delete from laneway.job where state = 4 and worker = p_worker and token = p_tokens[1] returning coalesce(line_from, 0) into v_from;
        if found then
            v_done := 1; v_done_queue := p_queues[1];
            select h.*, coalesce(h.expires >= v_now, true) as fresh, h.seq is not null and coalesce(h.expires >= v_now, true)
                and not (q.paused or q.collects or exists (
                    select 1 from laneway.job where state < 3 and lane is null and queue = q.name and rank < 0
                ) or exists (
                    select 1 from laneway.job where state < 3 and lane is null and queue = q.name and rank > 0
                ) or exists (
                    select 1 from laneway.job where state < 3 and lane is null and queue = q.name and rank = 0 and due <= v_now
                    and (due, place, seq) >= (case when not p_full then p_floors[1] else 0 end, p_floors[2], p_floors[3])
                ) or exists (
                    select 1 from laneway.job j where state < 3 and lane is not null and queue = q.name and due <= v_now
                    and (due, place, seq) >= (case when not p_full then p_lane_floors[1] else 0 end, p_lane_floors[2], p_lane_floors[3])
                    and j.seq <> h.seq
                )) as alone, exists (select 1 from laneway.inbox) as inbox, exists (
                    select 1 from laneway.inbox i where i.queue = q.name and i.lane = p_lanes[1] and i.gather is null
                ) as joins, (
                    select due from laneway.job
                    where queue = q.name and state = any ('{0,2}') and due > v_now order by due limit 1
                ) as next_due
            into v_head
            from laneway.queue q left join lateral laneway.line_head_v4(v_now, q.name, p_lanes[1], v_from) h on true
            where q.name = p_wants[1];
            if v_head.joins then
                raise exception 'the inbox has jobs of these lanes' using errcode = 'LW007';  -- see joins
            end if;
            v_alone := v_head.alone;
        else
            v_refused := p_tokens;
            insert into laneway.ledger (at, totals) values (v_now, '{"refused": 1}');
        end if;
    end if;
    if v_alone then
        update laneway.job j set state = 4, worker = p_worker, holds = (j.lane is not null)::integer, unique_key = case when j.end_key is not null then j.unique_key end, line_from = case when j.holds = 1 then j.line_from when j.lane is not null then least(v_quiet, j.place) end, token = (v_now / 1000 << 22) | (nextval('laneway.token') & 4194303) where j.ctid = v_head.tid
        returning token, id, task, lane, attempt, enqueued, due, place, seq, lost, body, line_from into v_claim;
        insert into laneway.ledger (at, queue, ready, scheduled, retrying, blocked, totals, runs, number)
        values (v_now, v_done_queue, - (v_head.state = 1)::integer, - (v_head.state = 0)::integer,
                - (v_head.state = 2)::integer, - (v_head.state = 3)::integer, '{"processed": 1}', p_runs[1] || ',', 1);
        return next row(
            1500, v_claim.token, v_claim.id, v_claim.task, v_done_queue, v_claim.lane, v_claim.attempt, v_claim.enqueued, v_claim.due,
            v_claim.place, v_claim.seq, v_claim.lost, v_claim.body, v_claim.line_from)::laneway.claimed_v4;
        v_claimed := 1; v_nothing := 3; v_next_due := v_head.next_due; v_inbox := v_head.inbox;
        v_cut := not p_full and (p_floors[1] > 0 or p_lane_floors[1] > 0);
    else
    declare
        v_next bigint[];                     -- the next jobs of the lanes that these held, in order; those of one queue
        v_next_tids tid[];
        v_next_states smallint[];
        v_next_dues bigint[];
        v_next_places bigint[];
        v_next_fresh boolean[];              -- they have not expired
        v_next_parked boolean[];             -- some of their lanes are parked: one must hold the lane
        v_next_queues text[];
        v_left integer := p_limit;           -- how many may still be claimed
        v_in_lanes boolean := cardinality(p_lanes) > 0;
        v_floor bigint[];
        v_after bigint[];                    -- where the window begins: due, place, seq
        v_gone bigint[];                     -- tokens of those that left, and their queues
        v_queues text[];
        v_want integer;                      -- and of this step
        v_passed integer := 0;               -- parked or expired
        v_idle_locks integer := 0;           -- of lanes whose next job cannot be claimed
        v_queue record;                      -- the queue, and what waits in it
        v_front bigint[];                    -- the first of that: due, place, seq
        v_rank smallint;
        v_number integer;
        v_ended text[] := '{}';              -- queues that were walked to their end
        v_laned boolean;                     -- lanes are due
        v_plain boolean;                     -- no lane is, and no job can expire
        v_chooses boolean;                   -- the next of lanes, and jobs without lanes among them
        v_full boolean;                      -- there may be lanes behind the window
        v_behind boolean;                    -- the walk did not begin at the front
        v_seqs bigint[];                     -- the window: due jobs in lanes, in order
        v_dues bigint[];
        v_places bigint[];
        v_lanes text[];
        v_met text[];                        -- its lanes
        v_locked text[] := '{}';             -- and those that are locked here
        v_chosen bigint[];                   -- jobs that come next, in order
        v_tids tid[];
        v_states smallint[];
        v_fresh boolean[];                   -- and have not expired
        v_expired boolean;                   -- some have
        v_keys bigint[];                     -- their due times, places and sequence numbers
        v_last integer;                      -- the last that the walk came to
        v_short boolean;                     -- there are fewer than wanted: the walk came to the end of the window
    begin
        if v_done > 0 then
            if v_head.seq is not null then
                v_next := array[v_head.seq]; v_next_tids := array[v_head.tid]; v_next_states := array[v_head.state];
                v_next_dues := array[v_head.due]; v_next_places := array[v_head.place]; v_next_fresh := array[v_head.fresh];
                v_next_parked := array[v_head.parked]; v_next_queues := p_queues;
            end if;
        elsif v_refused is null and cardinality(p_tokens) > 0 then
            if v_in_lanes and laneway.joins_v4(p_queues, p_lanes) is null then null; end if;
            -- The exit: delete the jobs whose claims the worker holds.
            with gone as (
                delete from laneway.job where state = 4 and worker = p_worker and token = any (p_tokens)
                returning token, queue, lane, line_from
            )
            select array_agg(token), array_agg(queue), min(queue), array_agg(queue) filter (where lane is not null),
                   array_agg(lane) filter (where lane is not null), array_agg(coalesce(line_from, 0)) filter (where lane is not null)
            into v_gone, v_queues, v_done_queue, v_next_queues, v_lanes, v_places from gone;
            if coalesce(cardinality(v_gone), 0) < cardinality(p_tokens) then
                v_refused := array(select t from unnest(p_tokens) t where v_gone is null or t <> all (v_gone));
                p_runs := array(select r from unnest(p_tokens, p_runs) u(t, r) where t = any (v_gone));
                insert into laneway.ledger (at, totals) values (v_now, jsonb_build_object('refused', cardinality(v_refused)));
            end if;
            v_done := coalesce(cardinality(v_gone), 0);
            if v_done > 0 and v_done_queue <> any (v_queues) then
                -- The records of all runs are in the row of one queue.
                insert into laneway.ledger (at, queue, running, totals, runs, number)
                select v_now, q, - count(*), jsonb_build_object('processed', count(*)),
                       case when q = v_done_queue then array_to_string(p_runs, ',') || ',' end, case when q = v_done_queue then v_done else 0 end
                from unnest(v_queues) q group by q;
                v_done := 0;
            end if;
            if v_lanes is not null then
                -- Find the next job of each of their lanes.
                select array_agg(h.seq), array_agg(h.tid), array_agg(h.state), array_agg(h.due), array_agg(h.place), array_agg(h.fresh),
                       array_agg(h.parked), array_agg(h.queue)
                into v_next, v_next_tids, v_next_states, v_next_dues, v_next_places, v_next_fresh, v_next_parked, v_next_queues
                from (
                    select h.seq, h.tid, h.state, h.due, h.place, h.expires is null or h.expires >= v_now as fresh, h.parked, u.queue
                    from unnest(v_next_queues, v_lanes, v_places) u(queue, lane, place),
                    lateral laneway.line_head_v4(v_now, u.queue, u.lane, u.place) h
                    order by h.due, h.place, h.seq
                ) h;
            end if;
        end if;
        for i in 1 .. cardinality(p_wants) loop
            exit when v_left <= 0 or v_passed >= 1000;
            -- Each part reads only its own range of an index: the rest may be full of dead entries of claimed jobs.
            select q.name, q.paused, q.collects,
                   (select min(rank) from laneway.job where state < 3 and lane is null and queue = q.name and rank < 0) as above,
                   exists (select 1 from laneway.job where state < 3 and queue = q.name and expires is not null) as expires,
                   (
                       select array[due, place, seq] from laneway.job
                       where state < 3 and lane is not null and queue = q.name and due <= v_now
                       and (due, place, seq) >= (p_lane_floors[3 * i - 2], p_lane_floors[3 * i - 1], p_lane_floors[3 * i])
                       order by due, place, seq limit 1
                   ) as laned,
                   case when v_next is not null then (
                       select array[due, place, seq] from laneway.job
                       where state < 3 and lane is null and queue = q.name and rank = 0 and due <= v_now
                       and (due, place, seq) >= (p_floors[3 * i - 2], p_floors[3 * i - 1], p_floors[3 * i])
                       order by due, place, seq limit 1
                   ) end as plain
            into v_queue from laneway.queue q where q.name = p_wants[i];
            continue when not found or v_queue.paused;
            if v_queue.collects then
                raise exception '%', v_queue.name using errcode = 'LW005';
            end if;
            v_want := least(p_most[i], v_left);
            v_left := v_left - v_want;
            -- Ranks below 0 are the higher priorities. Jobs in lanes have rank 0.
            v_rank := coalesce(v_queue.above, 0);
            v_laned := v_queue.laned is not null;
            v_chosen := '{}'; v_tids := '{}'; v_states := '{}';
            if v_next is not null then
                -- Straight on: the next job of a lane is claimed now if it comes before all waiting jobs. Otherwise it becomes the holder.
                v_number := 0;
                if v_rank = 0 and v_next_queues[1] = v_queue.name and v_queue.name = all (v_next_queues) then
                    v_front := least(v_queue.laned, v_queue.plain);
                    while v_number < least(cardinality(v_next), v_want) and v_next_fresh[v_number + 1] and coalesce(
                        array[v_next_dues[v_number + 1], v_next_places[v_number + 1], v_next[v_number + 1]] <= v_front, true)
                    loop
                        v_number := v_number + 1;
                    end loop;
                    v_chosen := v_next[1 : v_number];
                    v_tids := v_next_tids[1 : v_number];
                    v_states := v_next_states[1 : v_number];
                    v_more := v_more or coalesce(v_number = v_want and v_front[3] <> all (v_chosen), false);  -- no walk meets the front
                end if;
                if cardinality(v_next) > v_number and laneway.hold_lanes_v4(
                    v_now, v_quiet, v_next[v_number + 1 :], v_next_states[v_number + 1 :], v_next_parked[v_number + 1 :])
                then
                    v_laned := true;
                    v_held := v_next_dues[v_number + 1];
                    if p_lane_floors[3 * i - 2] > v_held then
                        p_lane_floors[3 * i - 2] := v_held; p_lane_floors[3 * i - 1] := 0; p_lane_floors[3 * i] := 0;
                    end if;
                end if;
                v_next := null;
            end if;
            if not v_laned then
                v_cut := v_cut or p_lane_floors[3 * i - 2] > 0 and not p_full;
                v_nothing := v_nothing | (case when i <= 30 then 2::bigint << (2 * i - 2) else 0 end);
            end if;
            while v_want > 0 and v_passed < 1000 loop
                v_plain := not v_queue.expires and (not v_laned or v_rank <> 0);
                v_floor := case when v_rank = 0 then p_floors[3 * i - 2 : 3 * i] else '{0,0,0}' end;
                v_after := array[p_lane_floors[3 * i - 2], p_lane_floors[3 * i - 1], p_lane_floors[3 * i] - 1];
                v_behind := v_rank = 0 and (v_floor[1] > 0 or v_after[1] > 0 and (v_laned or p_full));
                loop
                    v_number := cardinality(v_chosen);
                    v_chooses := not v_plain and v_number = 0;
                    if v_chooses then
                        v_seqs := '{}'; v_lanes := '{}'; v_met := '{}'; v_locked := '{}'; v_full := false;
                        if v_laned and v_rank = 0 then
                            v_number := least(greatest(v_want + 2 * v_passed, 32), 1000 - v_passed);
                            select coalesce(array_agg(seq), '{}'), array_agg(due), array_agg(place), array_agg(lane)
                            into v_seqs, v_dues, v_places, v_lanes
                            from (
                                select seq, due, place, lane from laneway.job
                                where state < 3 and lane is not null and queue = v_queue.name and due <= v_now
                                and (due, place, seq) > (v_after[1], v_after[2], v_after[3])
                                order by due, place, seq limit v_number
                            ) w;
                            v_full := cardinality(v_seqs) = v_number;
                            -- The server has room for a limited number of locks.
                            v_met := coalesce(v_lanes, '{}');
                            if cardinality(v_seqs) > 1 then
                                v_met := array(select l from unnest(v_lanes) with ordinality u(l, o) group by l order by min(o) limit 65);
                            end if;
                            if cardinality(v_met) > 64 then
                                v_number := array_position(v_lanes, v_met[65]) - 1;
                                v_seqs := v_seqs[1:v_number]; v_dues := v_dues[1:v_number]; v_places := v_places[1:v_number];
                                v_lanes := v_lanes[1:v_number]; v_met := v_met[1:64]; v_full := true;
                            end if;
                            if cardinality(v_met) > 1 then
                                v_locked := array(select l from unnest(v_met) l where pg_try_advisory_xact_lock(laneway.lane_key(v_queue.name, l)));
                            elsif pg_try_advisory_xact_lock(laneway.lane_key(v_queue.name, v_met[1])) then
                                v_locked := v_met;
                            end if;
                            v_more := v_more or cardinality(v_locked) < cardinality(v_met);
                            v_in_lanes := true;
                            if laneway.joins_v4(array_fill(v_queue.name, array[cardinality(v_locked)]), v_locked) is null then null; end if;
                            if v_full then
                                v_number := cardinality(v_seqs);
                                v_after := array[v_dues[v_number], v_places[v_number], v_seqs[v_number]];
                            end if;
                        end if;
                        -- The next job of each lane is its holder, else the first by place. They are sorted together with jobs
                        -- without lanes.
                        select coalesce(array_agg(seq), '{}'), array_agg(tid), array_agg(state), array_agg(expires is null or expires >= v_now),
                               array_agg(array[due, place, seq])
                        into v_chosen, v_tids, v_states, v_fresh, v_keys
                        from (
                            select * from (
                                select coalesce(h.seq, f.seq) as seq, coalesce(h.tid, f.tid) as tid, coalesce(h.state, f.state) as state, coalesce(h.due, f.due) as due,
                                       coalesce(h.place, f.place) as place, case when h.seq is null then f.expires else h.expires end as expires
                                from (
                                    select l.lane, coalesce((p_lines -> v_queue.name ->> l.lane)::bigint, 0) as line_from from unnest(v_locked) l(lane)
                                ) l
                                left join lateral (
                                    select seq, ctid as tid, state, due, place, expires from laneway.job
                                    where queue = v_queue.name and lane = l.lane and holds = 1 and place >= l.line_from
                                    order by place desc, seq desc limit 1
                                ) h on true
                                left join lateral laneway.line_head_v4(
                                    v_now, v_queue.name, case when h.seq is null then l.lane end, l.line_from) f on true
                                where h.seq is null and f.seq is not null or h.state < 3 and h.due <= v_now
                                union all
                                select * from (
                                    select seq, ctid, state, due, place, expires from laneway.job
                                    where state < 3 and lane is null and queue = v_queue.name and rank = v_rank and due <= v_now
                                    and (due, place, seq) >= (v_floor[1], v_floor[2], v_floor[3])
                                    and (not v_full or (due, place, seq) <= (v_after[1], v_after[2], v_after[3]))
                                    order by due, place, seq limit v_want for update skip locked
                                ) p
                            ) c order by due, place, seq limit v_want
                        ) c;
                        v_number := coalesce(array_position(v_fresh, false) - 1, cardinality(v_chosen));
                        v_expired := v_number < cardinality(v_chosen);
                        v_short := cardinality(v_chosen) < v_want and not v_expired;
                        v_last := v_number + v_expired::integer;
                    end if;
                    if v_plain or v_number > 0 then
                        -- Claim the chosen jobs, and, where no lane is due, those that a walk finds. Jobs in lanes are protected
                        -- by the locks of their lanes, others by row locks. A walk from the floor does not read the dead entries
                        -- of jobs that were claimed a moment ago.
                        return query
                        with chosen as materialized (
                            select u.tid, u.state, (v_now / 1000 << 22) | (nextval('laneway.token') & 4194303) as token from unnest(v_tids[1 : v_number], v_states[1 : v_number]) u(tid, state)
                            union all
                            select w.tid, w.state, (v_now / 1000 << 22) | (nextval('laneway.token') & 4194303) from (
                                select w.ctid as tid, w.state from laneway.job w
                                where v_plain and state < 3 and w.lane is null and w.queue = v_queue.name and w.rank = v_rank and w.due <= v_now
                                and (w.due, w.place, w.seq) >= (v_floor[1], v_floor[2], v_floor[3])
                                order by w.due, w.place, w.seq limit v_want - v_number for update skip locked
                            ) w
                        ), claimed as (
                            update laneway.job j
                            set state = 4, worker = p_worker, holds = (j.lane is not null)::integer, unique_key = case when j.end_key is not null then j.unique_key end, line_from = case when j.holds = 1 then j.line_from when j.lane is not null then least(v_quiet, j.place) end, token = c.token
                            from chosen c where j.ctid = c.tid returning j.*, c.state as before
                        ), counted as (
                            insert into laneway.ledger (at, queue, running, ready, scheduled, retrying, blocked, totals, runs, number)
                            select v_now, v_queue.name, count(*) - d.done, - count(*) filter (where before = 1),
                                   - count(*) filter (where before = 0), - count(*) filter (where before = 2),
                                   - count(*) filter (where before = 3), case when d.done > 0 then jsonb_build_object('processed', d.done) end,
                                   case when d.done > 0 then array_to_string(p_runs, ',') || ',' end, d.done
                            from (select case when v_done_queue = v_queue.name then v_done else 0 end as done) d left join claimed on true
                            group by d.done having count(claimed.seq) > 0
                        )
                        select i * 1000 + 500 + v_rank, c.token, c.id, c.task, c.queue, c.lane, c.attempt, c.enqueued, c.due, c.place,
                               c.seq, c.lost, c.body, c.line_from
                        from claimed c;
                        get diagnostics v_number = row_count;
                        v_claimed := v_claimed + v_number;
                        if v_number > 0 and v_done_queue = v_queue.name then
                            v_done := 0;
                        end if;
                    end if;
                    v_want := v_want - v_number;
                    if not v_chooses then
                        v_chosen := '{}';
                        exit when v_want <= 0;
                        continue when not v_plain;  -- these were next in settled lanes
                        v_full := false;
                    else
                        v_full := v_full or not v_short;
                        if v_expired then
                            v_passed := v_passed
                                + laneway.expire_v4(v_now, array(select s from unnest(v_chosen, v_fresh) u(s, f) where not f));
                            v_after := '{-1,-1,-1}';  -- other jobs came to the front: look again before the others are claimed
                        end if;
                        if v_seqs is distinct from v_chosen[1 : v_number] then
                            v_seqs := array(
                                select s from unnest(v_seqs, v_dues, v_places, v_lanes) u(s, d, p, l)
                                where l = any (v_locked) and s <> all (v_chosen)
                                and (v_short or (d, p, s) < (v_keys[v_last][1], v_keys[v_last][2], v_keys[v_last][3])) limit 1000 - v_passed
                            );
                            if cardinality(v_seqs) > 0 then
                                v_passed := v_passed + laneway.park_v4(v_now, v_queue.name, v_seqs);
                            end if;
                        end if;
                        v_idle_locks := v_idle_locks + greatest(cardinality(v_locked) - cardinality(v_chosen), 0);
                        if v_idle_locks >= 64 then
                            v_passed := 1000;  -- enough for one step: many workers share the server's table of locks
                        end if;
                        v_chosen := '{}';
                        exit when v_want <= 0 or v_passed >= 1000;
                    end if;
                    if not v_full then
                        -- Fewer jobs than wanted were found: walk again from the front, unless this walk began there.
                        if v_behind then
                            if p_full then
                                v_floor := '{0,0,0}'; v_after := '{-1,-1,-1}'; v_behind := false;
                                if not v_laned then  -- some may be due before their floor
                                    v_laned := exists (
                                        select 1 from laneway.job where state < 3 and lane is not null and queue = v_queue.name and due <= v_now);
                                    v_plain := not v_queue.expires and not v_laned;
                                end if;
                                continue;
                            end if;
                            v_cut := true;
                        end if;
                        v_nothing := v_nothing | (case when v_rank = 0 and i <= 30 then 1::bigint << (2 * i - 2) else 0 end);
                        exit;
                    end if;
                end loop;
                exit when v_want <= 0 or v_passed >= 1000;
                if v_rank < 0 then
                    select coalesce(min(rank), 0) into v_rank from laneway.job
                    where state < 3 and lane is null and queue = v_queue.name and rank > v_rank and rank < 0;
                else
                    select min(rank) into v_rank from laneway.job
                    where state < 3 and lane is null and queue = v_queue.name and rank > v_rank;
                end if;
                if v_rank is null then
                    v_ended := v_ended || v_queue.name::text;
                    exit;
                end if;
            end loop;
            v_left := v_left + greatest(v_want, 0);
        end loop;
        if v_next is not null and laneway.hold_lanes_v4(v_now, v_quiet, v_next, v_next_states, v_next_parked) then
            v_held := v_next_dues[1];
        end if;
        if v_done > 0 then
            insert into laneway.ledger (at, queue, running, totals, runs, number)
            values (v_now, v_done_queue, - v_done, jsonb_build_object('processed', v_done), array_to_string(p_runs, ',') || ',', v_done);
        end if;
        for i in 1 .. cardinality(p_wants) loop
            exit when v_more;
            continue when p_wants[i] = any (v_ended) and v_passed < 1000;
            continue when exists (select 1 from laneway.queue where name = p_wants[i] and paused);
            v_more := laneway.has_due_v4(v_now, p_wants[i], p_floors[3 * i - 2 : 3 * i], p_lane_floors[3 * i - 2 : 3 * i]);
            if not v_more and (p_floors[3 * i - 2] > 0 or p_lane_floors[3 * i - 2] > 0) then
                v_cut := v_cut or not p_full;
                v_more := p_full and laneway.has_due_v4(v_now, p_wants[i], '{0,0,0}', '{0,0,0}');
            end if;
        end loop;
        if not v_more then
            select min(f.due) into v_next_due
            from laneway.queue q, lateral (
                select j.due from laneway.job j
                where j.queue = q.name and j.state = any ('{0,2}') and j.due > v_now order by j.due limit 1
            ) f
            where q.name = any (p_wants) and not q.paused;
        end if;
        v_inbox := exists (select 1 from laneway.inbox);
        if not p_durable and not v_in_lanes then
            -- Do not wait for the disk: if the server crashes, some of these jobs run again, and none is lost. Not for jobs in
            -- lanes: two of them could then run at once.
            perform set_config('synchronous_commit', 'off', true);
        end if;
    end;
    end if;
    return next row(
        -1, v_nothing, array_to_string(v_refused, ','), (case when v_alone then 0 else pg_stat_get_xact_tuples_returned('laneway.job_line'::regclass) + pg_stat_get_xact_tuples_returned('laneway.job_holder'::regclass) - v_lined end)::text,
        coalesce(pg_sequence_last_value('laneway.back'), 0)::text, null, v_more::integer, pg_stat_get_xact_tuples_returned('laneway.job_due'::regclass) + pg_stat_get_xact_tuples_returned('laneway.job_due_lane'::regclass) + pg_stat_get_xact_blocks_fetched('laneway.job_due'::regclass) + pg_stat_get_xact_blocks_fetched('laneway.job_due_lane'::regclass) - v_walked, v_next_due, v_now, v_cut::integer,
        case when v_inbox and p_limit > v_claimed then 'inbox' end, ''::bytea, v_held
    )::laneway.claimed_v4;
end $$;
CREATE FUNCTION laneway.expire_v4(p_now bigint, p_seqs bigint[]) RETURNS integer
    LANGUAGE plpgsql
    AS $$
declare
    v_number integer;
    v_queues text[];
    v_lanes text[];
    v_next bigint[];
begin
    with gone as (
        delete from laneway.job where seq = any (p_seqs) returning id, task, queue, lane, enqueued, state, holds
    ), counted as (
        insert into laneway.ledger (at, queue, scheduled, ready, retrying, blocked, totals, runs, number)
        select p_now, queue, - count(*) filter (where state = 0), - count(*) filter (where state = 1),
               - count(*) filter (where state = 2), - count(*) filter (where state = 3),
               jsonb_build_object('cancelled', count(*)),
               string_agg(json_build_array(id, task, queue, lane, enqueued, 0, p_now, 'cancelled')::text, ',') || ',', count(*)
        from gone group by queue
    )
    select count(*), array_agg(queue) filter (where holds = 1), array_agg(lane) filter (where holds = 1)
    into v_number, v_queues, v_lanes from gone;
    if v_lanes is not null then
        -- Delete the next jobs of their lanes too, as long as these have expired.
        v_next := array(
            select f.seq from unnest(v_queues, v_lanes) u(queue, lane), lateral (
                select seq, bool_and(expires is not null and expires < p_now) over (order by place, seq) as old from (
                    select seq, expires, place from laneway.job j
                    where j.queue = u.queue and j.lane = u.lane and j.state = 3 order by place, seq limit 1000 - v_number
                ) j
            ) f where f.old
        );
        if cardinality(v_next) > 0 then
            v_number := v_number + laneway.expire_v4(p_now, v_next);
        end if;
        perform laneway.let_out_v4(p_now, v_queues, v_lanes);
    end if;
    return v_number;
end $$;
CREATE FUNCTION laneway.finish(p_claim text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET lock_timeout TO '1500ms'
    AS $$
declare
    v_given json := p_claim::json;
    v_found record;
begin
    if v_given ->> 'version' is distinct from '4' then
        raise exception 'the functions of Laneway have version 4, and this program wants %', v_given ->> 'version' using errcode = 'LW008';
    end if;
    update laneway.job set finish = convert_to(v_given ->> 'mark', 'UTF8')
    where state = 4 and token = (v_given ->> 'token')::bigint and id = v_given ->> 'id' and mark is null and finish is null;
    if found then
        return;
    end if;
    select mark, finish into v_found from laneway.job
    where state = 4 and token = (v_given ->> 'token')::bigint and id = v_given ->> 'id';
    if v_found.finish is not null then
        raise exception 'finished' using errcode = 'LW009';
    end if;
    raise exception '%', coalesce(v_found.mark, 'taken') using errcode = 'LW002';
end $$;
CREATE FUNCTION laneway.fold_v4(p_ten bigint, p_keep bigint) RETURNS boolean
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
declare
    v_old pg_snapshot;
    v_runs bigint;
    v_cleared xid8;
begin
    if not pg_try_advisory_xact_lock(hashtextextended('laneway', 80)) then
        return false;
    end if;
    if not laneway.is_original_v4() then
        return false;
    end if;
    select snap, runs, cleared into v_old, v_runs, v_cleared from laneway.books;  -- the lock is held: this statement sees the last fold
    with now as materialized (select pg_current_snapshot() as snap),
    new as materialized (
        select l.* from laneway.ledger l where l.xid >= pg_snapshot_xmax(v_old)
        union all
        select l.* from pg_snapshot_xip(v_old) x join laneway.ledger l on l.xid = x
    ), queues as (
        insert into laneway.counted as old (queue, scheduled, ready, retrying, blocked, running, dead)
        select queue, sum(scheduled), sum(ready), sum(retrying), sum(blocked), sum(running), sum(dead)
        from new where queue is not null group by queue
        on conflict (queue) do update set scheduled = old.scheduled + excluded.scheduled, ready = old.ready + excluded.ready,
            retrying = old.retrying + excluded.retrying, blocked = old.blocked + excluded.blocked,
            running = old.running + excluded.running, dead = old.dead + excluded.dead
    ), known as (
        insert into laneway.queue (name) select distinct queue from new where queue is not null on conflict (name) do nothing
    ), arrivals as (
        insert into laneway.arrived as old (at, queue, task, number)
        select at - at % p_ten, queue, task, sum(arrived) from new where arrived > 0 and queue is not null and task is not null group by 1, 2, 3
        on conflict (at, queue, task) do update set number = old.number + excluded.number
    ), portions as (
        insert into laneway.recent (last, runs)
        select b.runs + sum(n.number) over (order by n.at, n.xid, n.place), n.runs
        from (select at, xid, runs, number, row_number() over () as place from new where number > 0 and runs is not null) n, laneway.books b
    ), totals as (
        select jsonb_object_agg(name, value) as totals from (
            select t.key as name, sum(t.value::bigint) as value
            from (select totals from new where totals is not null union all select totals from laneway.books) a, jsonb_each_text(a.totals) t
            group by t.key
        ) s
    )
    update laneway.books set snap = now.snap, totals = coalesce(t.totals, '{}'), cleared = pg_snapshot_xmin(v_old),
        runs = runs + (select coalesce(sum(number), 0) from new)
    from now, totals t;
    -- The last fold deleted all earlier rows. The lower bound keeps this scan away from their dead entries in the index.
    delete from laneway.ledger where xid >= v_cleared and xid < pg_snapshot_xmin(v_old);
    delete from laneway.recent where last > v_runs - p_keep and last <= (select runs - p_keep from laneway.books);
    return true;
end $$;
CREATE FUNCTION laneway.has_due_v4(p_now bigint, p_queue text, p_floor bigint[], p_lane_floor bigint[]) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
declare
    v_rank smallint := -1000;
begin
    if exists (
        select 1 from laneway.job
        where state < 3 and lane is null and queue = p_queue and rank = 0 and due <= p_now
        and (due, place, seq) >= (p_floor[1], p_floor[2], p_floor[3])
    ) or exists (
        select 1 from laneway.job
        where state < 3 and lane is not null and queue = p_queue and due <= p_now
        and (due, place, seq) >= (p_lane_floor[1], p_lane_floor[2], p_lane_floor[3])
    ) then
        return true;
    end if;
    -- The other ranks: none of these statements reads the dead entries of rank 0.
    while v_rank < 0 loop
        select coalesce(min(rank), 0) into v_rank from laneway.job
        where state < 3 and lane is null and queue = p_queue and rank > v_rank and rank < 0;
        perform 1 from laneway.job where state < 3 and lane is null and queue = p_queue and rank = v_rank and rank < 0 and due <= p_now limit 1;
        if found then return true; end if;
    end loop;
    loop
        select min(rank) into v_rank from laneway.job where state < 3 and lane is null and queue = p_queue and rank > v_rank;
        exit when v_rank is null;
        perform 1 from laneway.job where state < 3 and lane is null and queue = p_queue and rank = v_rank and due <= p_now limit 1;
        if found then return true; end if;
    end loop;
    return false;
end $$;
CREATE FUNCTION laneway.hold_lanes_v4(p_now bigint, p_quiet bigint, p_seqs bigint[], p_states smallint[], p_parked boolean[]) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
begin
    if p_seqs is null or true <> all (p_parked) then
        return false;
    end if;
    with held as (
        update laneway.job j set state = 1, holds = 1, line_from = least(p_quiet, j.place)
        from unnest(p_seqs, p_states, p_parked) u(seq, state, parked) where j.seq = u.seq and u.parked returning j.queue, u.state as before
    )
    insert into laneway.ledger (at, queue, ready, blocked, scheduled, retrying)
    select p_now, queue, count(*) filter (where before <> 1), - count(*) filter (where before = 3),
           - count(*) filter (where before = 0), - count(*) filter (where before = 2)
    from held group by queue;
    return true;
end $$;
CREATE FUNCTION laneway.hold_v4(p_ids text[]) RETURNS void
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
begin
    perform laneway.lock_lanes(array_agg(queue), array_agg(lane))
    from laneway.job where id = any (p_ids) and lane is not null and side is null and score is null;
    perform 1 from (select id from laneway.job where id = any (p_ids) order by id for update) held;
end $$;
CREATE FUNCTION laneway.is_first_v4(p_queue text, p_due bigint) RETURNS boolean
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
begin
    return not exists (
        select 1 from laneway.job where queue = p_queue and state = any ('{0,2}') and due < p_due);
end $$;
CREATE FUNCTION laneway.is_free_v4(p_number integer) RETURNS boolean
    LANGUAGE sql
    AS $$
    select pg_try_advisory_lock(hashtextextended('laneway', p_number)) and pg_advisory_unlock(hashtextextended('laneway', p_number))
$$;
CREATE FUNCTION laneway.is_original_v4() RETURNS boolean
    LANGUAGE sql STABLE
    AS $$
    select exists (
        select 1 from laneway.origin o, laneway.books b
        where o.xmin = o.xid::xid and o.tableoid = o.relation and pg_snapshot_xmax(b.snap) <= pg_snapshot_xmax(pg_current_snapshot()))
$$;
CREATE FUNCTION laneway.joins_v4(p_queues text[], p_lanes text[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
    if exists (select 1 from laneway.inbox) and exists (
        select 1 from unnest(p_queues, p_lanes) u(queue, lane), laneway.inbox i
        where i.queue = u.queue and i.lane = u.lane and i.gather is null
    ) then
        raise exception 'the inbox has jobs of these lanes' using errcode = 'LW007';
    end if;
end $$;
CREATE FUNCTION laneway.lane_key(p_queue text, p_lane text) RETURNS bigint
    LANGUAGE sql IMMUTABLE
    AS $$
    select hashtextextended(p_lane, hashtextextended(p_queue, 76))
$$;
CREATE FUNCTION laneway.let_out_v4(p_now bigint, p_queues text[], p_lanes text[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
declare
    v_quiet bigint := laneway.quiet_v4(p_now);
    v_seqs bigint[];
    v_states smallint[];
    v_parked boolean[];
begin
    select array_agg(h.seq), array_agg(h.state), array_agg(h.parked) into v_seqs, v_states, v_parked
    from (select distinct q as queue, l as lane from unnest(p_queues, p_lanes) u(q, l)) u,
    lateral laneway.line_head_v4(p_now, u.queue, u.lane, 0) h;
    if laneway.hold_lanes_v4(p_now, v_quiet, v_seqs, v_states, v_parked) is null then null; end if;
end $$;
CREATE FUNCTION laneway.line_head_v4(p_now bigint, p_queue text, p_lane text, p_from bigint) RETURNS TABLE(seq bigint, state smallint, due bigint, place bigint, expires bigint, parked boolean, tid tid)
    LANGUAGE sql STABLE
    AS $$
    select j.seq, j.state, j.due, j.place, j.expires, j.state = 3 or exists (
        select 1 from laneway.job p where p.queue = p_queue and p.lane = p_lane and p.state = 3 and p.place >= p_from), j.ctid
    from laneway.job j
    where j.queue = p_queue and j.lane = p_lane and j.state <= 3 and j.side is null and j.place >= p_from
    and (j.state = 3 or j.due <= p_now)
    order by j.place, j.seq limit 1
$$;
CREATE FUNCTION laneway.lock_lanes(p_queues text[], p_lanes text[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
declare
    v_key bigint;
begin
    if cardinality(p_lanes) = 1 then
        if pg_advisory_xact_lock(laneway.lane_key(p_queues[1], p_lanes[1])) is null then null; end if;
        return;
    end if;
    for v_key in select distinct laneway.lane_key(q, l) from unnest(p_queues, p_lanes) u(q, l) order by 1 loop
        if pg_advisory_xact_lock(v_key) is null then null; end if;
    end loop;
end $$;
CREATE FUNCTION laneway.next_score(p_now bigint) RETURNS double precision
    LANGUAGE sql
    AS $$
    select setval('laneway.score', greatest(last_value + 1, p_now)) / 1000000.0 from laneway.score
$$;
CREATE FUNCTION laneway.next_token() RETURNS bigint
    LANGUAGE sql
    AS $$
    select ((extract(epoch from clock_timestamp()) * 1000)::bigint << 22) | (nextval('laneway.token') & 4194303)
$$;
CREATE FUNCTION laneway.now_us() RETURNS bigint
    LANGUAGE sql
    AS $$
    select (date_part('epoch', clock_timestamp()) * 1000000)::bigint
$$;
CREATE FUNCTION laneway.open_v4(p_worker text, p_tokens bigint[]) RETURNS SETOF bigint
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
declare
    v_free bigint[] := array(
        select token from laneway.job where state = 4 and token = any (p_tokens) and worker = p_worker order by id for update skip locked);
begin
    if cardinality(v_free) < cardinality(p_tokens) then
        return query
        select token from laneway.job where state = 4 and token = any (p_tokens) and worker = p_worker and token <> all (v_free);
    end if;
end $$;
CREATE FUNCTION laneway.park_v4(p_now bigint, p_queue text, p_seqs bigint[]) RETURNS integer
    LANGUAGE plpgsql
    AS $$
declare
    v_number integer;
begin
    with given as materialized (
        select seq, state, lane from laneway.job where seq = any (p_seqs) and state < 3 and holds = 0
    ), held as materialized (  -- lane by lane: a plan made for a small table must not read whole lanes of a large one
        select l.lane from (select distinct lane from given) l, lateral (
            select 1 from laneway.job h where h.queue = p_queue and h.lane = l.lane and h.holds = 1 order by place desc, seq desc limit 1
        ) h
    ), met as materialized (
        select seq, state from given where lane in (select lane from held)
    ), moved as (
        update laneway.job j set state = 3 from met m where j.seq = m.seq returning m.state
    ), counted as (
        insert into laneway.ledger (at, queue, blocked, ready, scheduled, retrying)
        select p_now, p_queue, count(*), - count(*) filter (where state = 1), - count(*) filter (where state = 0),
               - count(*) filter (where state = 2)
        from moved having count(*) > 0
    )
    select count(*) into v_number from moved;
    return v_number;
end $$;
CREATE FUNCTION laneway.push_lanes_v4(p_seqs bigint[], p_ids text[], p_queues text[], p_tasks text[], p_lanes text[], p_dues bigint[], p_states smallint[], p_now bigint) RETURNS SETOF bigint
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
declare
    v_lane record;
begin
    for v_lane in
        select * from unnest(p_seqs, p_ids, p_queues, p_tasks, p_lanes, p_dues, p_states) u(seq, id, queue, task, lane, due, state)
        order by u.id collate "C"
    loop
        loop
            insert into laneway.job (seq, id, queue, task, lane, rank, place, due, state, enqueued, side, body)
            values (v_lane.seq, v_lane.id, v_lane.queue, v_lane.task, v_lane.lane, 0, v_lane.due, v_lane.due, v_lane.state, p_now, 0, '')
            on conflict (id) do nothing;
            if found then
                return next v_lane.seq;
                exit;
            end if;
            perform 1 from laneway.job where id = v_lane.id for update;
            exit when found;
        end loop;
    end loop;
end $$;
CREATE FUNCTION laneway.push_one_v4(p_id text, p_body bytea, p_queue text, p_task text, p_lane text, p_rank smallint, p_delay bigint, p_at bigint, p_expires bigint, p_known boolean, p_unique text DEFAULT NULL::text, p_end_key text DEFAULT NULL::text, p_inside boolean DEFAULT false) RETURNS boolean
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET lock_timeout TO '1500ms'
    AS $$
declare
    v_now bigint;
    v_due bigint;
begin
    if pg_current_xact_id() is null then null; end if;  -- the locks and the clock are as in push
    if pg_advisory_xact_lock_shared(hashtextextended('laneway', case when p_inside then 83 else 85 end)) is null then null; end if;
    if pg_advisory_xact_lock_shared(hashtextextended(p_queue, hashtextextended('laneway', 78))) is null then null; end if;
    -- Read after the locks: a transaction that sets it holds them exclusively.
    if not p_known or pg_sequence_last_value('laneway.special') is not null then
        if not exists (select 1 from laneway.queue, laneway.meta where name = p_queue and not collects and not closed) then
            return null;
        end if;
    end if;
    v_now := laneway.now_us();
    if coalesce(pg_sequence_last_value('laneway.clock') not between v_now - 1000000 and v_now, true)
        or current_setting('transaction_isolation') <> 'read committed' then  -- else step has nothing to do
        v_now := laneway.step_v4(p_inside);
    end if;
    v_due := greatest(p_at, v_now + p_delay);
    insert into laneway.job (seq, id, queue, task, lane, rank, place, due, state, enqueued, unique_key, end_key, expires, body)
    values (nextval('laneway.seq'), p_id, p_queue, p_task, p_lane, p_rank, v_due, v_due,
            case when v_due <= v_now then 1 else 0 end, v_now, p_unique, p_end_key,
            case when p_expires > 0 then v_due + p_expires end, p_body)
    on conflict do nothing;
    if not found then
        return null;
    end if;
    insert into laneway.ledger (at, queue, task, arrived, ready, scheduled, totals)
    values (v_now, p_queue, p_task, 1, (v_due <= v_now)::integer, (v_due > v_now)::integer, '{"enqueued": 1}');
    return not p_inside and laneway.sleeps_v4() and (v_due <= v_now or laneway.is_first_v4(p_queue, v_due));
end $$;
CREATE FUNCTION laneway.push_v4(p_ids text[], p_bodies bytea[], p_queues text[], p_tasks text[], p_lanes text[], p_ranks smallint[], p_delays bigint[], p_ats bigint[], p_uniques text[], p_end_keys text[], p_expires bigint[], p_replaces boolean, p_inside boolean, OUT prevented text[], OUT rings boolean) RETURNS record
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET lock_timeout TO '1500ms'
    AS $$
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
        rings := laneway.push_one_v4(
            p_ids[1], p_bodies[1], p_queues[1], p_tasks[1], p_lanes[1], p_ranks[1], p_delays[1], p_ats[1], p_expires[1], false,
            p_uniques[1], p_end_keys[1], p_inside);
        if rings is not null then
            return;
        end if;
    end if;
    -- Assigned before the clock is read: jobs that a snapshot does not show have later places than the snapshot's time.
    if pg_current_xact_id() is null then null; end if;
    -- Until this transaction ends, no copy can close the store, and `quiet` does not advance. For lock 85 see also `sleeps`.
    if pg_advisory_xact_lock_shared(hashtextextended('laneway', case when p_inside then 83 else 85 end)) is null then null; end if;
    if exists (select 1 from laneway.meta where closed) then
        raise exception 'a copy has closed the store' using errcode = 'LW006';
    end if;
    v_now := laneway.step_v4(p_inside);
    perform laneway.enter_queue_v4(q, p_inside) from (select distinct q from unnest(p_queues) q) q;
    -- All transactions insert keys in one order, so that no two wait for each other. Not if an id comes twice: then the first job
    -- counts.
    v_sorted := not v_alike and (select count(distinct id) = v_number from unnest(p_ids) id);
    with given as materialized (
        select u.id, u.body, nextval('laneway.seq') as seq,
               case when v_alike then p_queues[1] else u.queue end as queue, case when v_alike then p_tasks[1] else u.task end as task,
               case when v_alike then p_lanes[1] else u.lane end as lane, case when v_alike then p_ranks[1] else u.rank end as rank,
               greatest(case when v_alike then p_ats[1] else u.at end, v_now + case when v_alike then p_delays[1] else u.delay end) as due,
               u.unique_key, u.end_key, case when v_alike then p_expires[1] else u.expires end as expires
        from unnest(p_ids, p_bodies, p_queues, p_tasks, p_lanes, p_ranks, p_delays, p_ats, p_uniques, p_end_keys, p_expires)
             u(id, body, queue, task, lane, rank, delay, at, unique_key, end_key, expires)
    ), pushed as (
        insert into laneway.job (seq, id, queue, task, lane, rank, place, due, state, enqueued, unique_key, end_key, expires, body)
        select seq, id, queue, task, lane, rank, due, due, case when due <= v_now then 1 else 0 end, v_now, unique_key, end_key,
               case when expires > 0 then due + expires end, body
        from given order by case when v_sorted then unique_key end, case when v_sorted and p_replaces and unique_key is null then id end, seq
        on conflict do nothing
        returning seq, id, queue, task, state, due
    ), counted as (
        insert into laneway.ledger (at, queue, task, arrived, ready, scheduled, totals)
        select v_now, queue, task, count(*), count(*) filter (where state = 1), count(*) filter (where state = 0),
               jsonb_build_object('enqueued', count(*))
        from pushed group by queue, task
    )
    select (select array_agg(seq order by seq) from given), array_agg(seq), array_agg(id) filter (where p_replaces),
           coalesce(bool_or(state = 1), false), array_agg(queue) filter (where state = 0), min(due)
    into v_given, v_in, v_ids, rings, v_later, v_due from pushed;
    rings := not p_inside and laneway.sleeps_v4() and (rings or exists (
        select 1 from unnest(v_later) q where laneway.is_first_v4(q, v_due)));
    if p_replaces then
        delete from laneway.finished where id = any (v_ids);
    end if;
    if coalesce(cardinality(v_in), 0) = v_number then
        return;
    end if;
    prevented := array(
        select case when u.seq <> all (coalesce(v_in, '{}')) then coalesce(
            (select j.id from laneway.job j where j.id = u.id and j.seq < u.seq),
            (select j.id from laneway.job j where j.unique_key = u.key and j.seq < u.seq), '')
        end
        from unnest(p_ids, p_uniques, v_given) with ordinality u(id, key, seq, at) order by u.at
    );
end $$;
CREATE FUNCTION laneway.queue_due_v4(p_now bigint, p_queue text) RETURNS TABLE(more boolean, next_due bigint)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
begin
    return query
    select laneway.has_due_v4(p_now, p_queue, '{0,0,0}', '{0,0,0}'),
           (select min(due) from laneway.job where queue = p_queue and state = any ('{0,2}') and due > p_now);
end $$;
CREATE FUNCTION laneway.quiet_v4(p_now bigint) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
declare
    v_quiet bigint := coalesce(pg_sequence_last_value('laneway.quiet'), 0);
begin
    -- Each push holds one of these locks, and reads the clock after it got it. The jobs of those that have committed are visible to
    -- the next statement, which has a new snapshot. A job of the inbox will join the others with the place that it got there.
    if p_now > v_quiet + 50000 and laneway.is_free_v4(83) and laneway.is_free_v4(85) then
        if not exists (select 1 from laneway.inbox) then
            perform setval('laneway.clock', p_now), setval('laneway.quiet', p_now);
            return p_now;
        end if;
    end if;
    return v_quiet;
end $$;
CREATE FUNCTION laneway.reach_v4(p_now bigint, p_seq bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
    perform setval('laneway.clock', p_now) from laneway.clock where last_value < p_now;
    perform setval('laneway.seq', p_seq) from laneway.seq where last_value < p_seq;
end $$;
CREATE FUNCTION laneway.recount_v4() RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$
begin
    if laneway.is_original_v4() then
        return true;
    end if;
    if current_setting('transaction_read_only')::boolean or not pg_try_advisory_xact_lock(hashtextextended('laneway', 80)) then
        return false;
    end if;
    if laneway.is_original_v4() then
        return true;
    end if;
    with now as materialized (select pg_current_snapshot() as snap, pg_current_xact_id() as me),
    gone as (
        delete from laneway.ledger l returning l.*, l.xmin as written
    ), kept as (
        insert into laneway.ledger (at, queue, task, arrived, totals, runs, number)
        select g.at, g.queue, g.task, g.arrived, g.totals, g.runs, g.number
        from gone g cross join now cross join laneway.books b left join laneway.origin o on true
        where not pg_visible_in_snapshot(g.xid, b.snap)
        or g.xid < pg_snapshot_xmax(now.snap) and age(g.xid::xid) >= age(g.written) and age(g.xid::xid) < age(o.xmin)
        order by g.at, g.xid
    ), counts as (
        insert into laneway.counted as old (queue, scheduled, ready, retrying, blocked, running, dead)
        select queue, count(*) filter (where state = 0), count(*) filter (where state = 1), count(*) filter (where state = 2),
               count(*) filter (where state = 3), count(*) filter (where state = 4), count(*) filter (where state = 5)
        from (select queue, state from laneway.job union all select queue, null from laneway.counted) j group by queue
        on conflict (queue) do update set scheduled = excluded.scheduled, ready = excluded.ready, retrying = excluded.retrying,
            blocked = excluded.blocked, running = excluded.running, dead = excluded.dead
        returning old.queue
    ), known as (
        insert into laneway.queue (name) select queue from counts on conflict (name) do nothing
    )
    -- This transaction is added to the snapshot's list of those in progress, so that the next fold adds up its rows: its own
    -- snapshot does not list it.
    update laneway.books set cleared = pg_snapshot_xmin(now.snap), snap = format(
        '%s:%s:%s', pg_snapshot_xmin(now.snap), pg_snapshot_xmax(now.snap), (
            select string_agg(x::text, ',' order by x)
            from (select pg_snapshot_xip(now.snap) union select now.me where now.me < pg_snapshot_xmax(now.snap)) open(x)))::pg_snapshot
    from now;
    delete from laneway.origin;
    insert into laneway.origin (xid, relation) values (pg_current_xact_id(), 'laneway.origin'::regclass);
    return true;
end $$;
CREATE FUNCTION laneway.ring_v4() RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
    if laneway.sleeps_v4() then
        perform pg_notify('laneway', '');
    end if;
end $$;
CREATE FUNCTION laneway.set_move_v4(p_move text, p_closed boolean) RETURNS void
    LANGUAGE plpgsql
    AS $$
declare
    v_closed boolean;
    v_worker text;
begin
    perform pg_advisory_xact_lock(hashtextextended('laneway', 82));
    perform pg_advisory_xact_lock(hashtextextended('laneway', 83));
    perform pg_advisory_xact_lock(hashtextextended('laneway', 85));
    if p_closed then
        perform nextval('laneway.special');
    end if;
    select closed into v_closed from laneway.meta;
    update laneway.meta set move = p_move, closed = p_closed;
    if v_closed <> p_closed then
        for v_worker in select worker from laneway.fence order by worker loop
            perform pg_advisory_xact_lock(hashtextextended(v_worker, 77));
        end loop;
        delete from laneway.fence;
    end if;
end $$;
CREATE FUNCTION laneway.sleeps_v4() RETURNS boolean
    LANGUAGE sql
    AS $$
    select not laneway.is_free_v4(79)
$$;
CREATE FUNCTION laneway.step_v4(p_inside boolean DEFAULT false) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
declare
    v_now bigint := laneway.now_us();
    v_mark bigint;
begin
    if not p_inside and current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'the isolation level is %', current_setting('transaction_isolation') using errcode = 'LW003';
    end if;
    v_mark := coalesce(pg_sequence_last_value('laneway.clock'), 1);  -- not a select: that costs ten times as much
    if v_now > v_mark + 1000000 then
        perform setval('laneway.clock', v_now);
    end if;
    return greatest(v_now, v_mark);
end $$;
CREATE FUNCTION laneway.take_claims_v4(p_worker text, p_keep bigint[]) RETURNS void
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
begin
    perform pg_advisory_xact_lock(hashtextextended(p_worker, 77));
    delete from laneway.fence where worker = p_worker;
    perform laneway.lock_lanes(array_agg(queue), array_agg(lane))
    from laneway.job where state = 4 and worker = p_worker and lane is not null and side is null;
    if p_keep is not null then
        perform 1 from (
            select id from laneway.job where state = 4 and worker = p_worker and token <> all (p_keep) order by id for update
        ) held;
    end if;
end $$;
CREATE FUNCTION laneway.totals_v4() RETURNS TABLE(name text, value bigint)
    LANGUAGE plpgsql STABLE
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
#variable_conflict use_column
begin
    return query
    with book as (select snap, totals from laneway.books),
    new as (
        select l.totals from book, laneway.ledger l where l.xid >= pg_snapshot_xmax(book.snap)
        union all
        select l.totals from book, pg_snapshot_xip(book.snap) x join laneway.ledger l on l.xid = x
    )
    select t.key, sum(t.value::bigint)::bigint
    from (select totals from new where totals is not null union all select totals from book) a, jsonb_each_text(a.totals) t
    group by t.key;
end $$;
CREATE FUNCTION laneway.turn_v4(OUT now bigint, OUT moved text) RETURNS record
    LANGUAGE plpgsql
    AS $$
begin
    if laneway.check_primary() is null then null; end if;
    perform pg_advisory_xact_lock_shared(hashtextextended('laneway', 82));
    perform pg_advisory_xact_lock_shared(hashtextextended('laneway', 83));  -- as a push: it may give jobs new places, see quiet
    perform set_config(s, 'off', true)
    from unnest('{enable_seqscan,enable_bitmapscan,enable_hashjoin,enable_mergejoin,jit}'::text[]) s;
    now := laneway.step_v4();
    select m.move into moved from laneway.meta m where m.closed;
end $$;
SET default_tablespace = '';
SET default_table_access_method = heap;
CREATE TABLE laneway.ledger (
    xid xid8 DEFAULT pg_current_xact_id() NOT NULL,
    at bigint NOT NULL,
    queue text COLLATE pg_catalog."C",
    task text COLLATE pg_catalog."C",
    arrived integer DEFAULT 0 NOT NULL,
    scheduled integer DEFAULT 0 NOT NULL,
    ready integer DEFAULT 0 NOT NULL,
    retrying integer DEFAULT 0 NOT NULL,
    blocked integer DEFAULT 0 NOT NULL,
    running integer DEFAULT 0 NOT NULL,
    dead integer DEFAULT 0 NOT NULL,
    totals jsonb,
    runs text,
    number integer DEFAULT 0 NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='20000', autovacuum_vacuum_cost_delay='0', vacuum_truncate=off);
ALTER TABLE ONLY laneway.ledger ALTER COLUMN runs SET STORAGE EXTERNAL;
CREATE FUNCTION laneway.unfolded_v4() RETURNS SETOF laneway.ledger
    LANGUAGE plpgsql STABLE
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
#variable_conflict use_column
begin
    return query
    select l.* from laneway.books b, laneway.ledger l where l.xid >= pg_snapshot_xmax(b.snap)
    union all
    select l.* from laneway.books b, pg_snapshot_xip(b.snap) x join laneway.ledger l on l.xid = x;
end $$;
CREATE FUNCTION laneway.view_v4() RETURNS bigint
    LANGUAGE sql
    AS $$
    select greatest(laneway.now_us(), last_value) from laneway.clock
$$;
CREATE TABLE laneway.arrived (
    at bigint NOT NULL,
    queue text NOT NULL COLLATE pg_catalog."C",
    task text NOT NULL COLLATE pg_catalog."C",
    number bigint NOT NULL
);
CREATE SEQUENCE laneway.back
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE TABLE laneway.books (
    only_row boolean DEFAULT true NOT NULL,
    snap pg_snapshot DEFAULT pg_current_snapshot() NOT NULL,
    totals jsonb DEFAULT '{}'::jsonb NOT NULL,
    cleared xid8 DEFAULT '0'::xid8 NOT NULL,
    runs bigint DEFAULT 0 NOT NULL,
    closed bigint DEFAULT 0 NOT NULL,
    CONSTRAINT books_only_row_check CHECK (only_row)
)
WITH (fillfactor='10');
CREATE SEQUENCE laneway.clock
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE TABLE laneway.counted (
    queue text NOT NULL COLLATE pg_catalog."C",
    scheduled bigint NOT NULL,
    ready bigint NOT NULL,
    retrying bigint NOT NULL,
    blocked bigint NOT NULL,
    running bigint NOT NULL,
    dead bigint NOT NULL
)
WITH (fillfactor='50');
CREATE TABLE laneway.counter (
    name text NOT NULL COLLATE pg_catalog."C",
    value bigint NOT NULL
);
CREATE TABLE laneway.fault (
    id text NOT NULL COLLATE pg_catalog."C",
    count bigint NOT NULL,
    first bigint NOT NULL,
    last bigint NOT NULL,
    sample bytea NOT NULL
);
CREATE UNLOGGED TABLE laneway.fence (
    worker text NOT NULL COLLATE pg_catalog."C",
    epoch bigint NOT NULL
);
CREATE TABLE laneway.figures (
    level bigint NOT NULL,
    at bigint NOT NULL,
    figures bytea NOT NULL
);
CREATE TABLE laneway.finished (
    seq bigint NOT NULL,
    id text NOT NULL COLLATE pg_catalog."C",
    queue text NOT NULL COLLATE pg_catalog."C",
    task text NOT NULL COLLATE pg_catalog."C",
    lane text COLLATE pg_catalog."C",
    rank smallint NOT NULL,
    place bigint NOT NULL,
    due bigint NOT NULL,
    state smallint NOT NULL,
    attempt integer NOT NULL,
    enqueued bigint NOT NULL,
    worker text COLLATE pg_catalog."C",
    errors bytea,
    notes bytea,
    started bigint NOT NULL,
    until bigint NOT NULL,
    value bytea,
    body bytea NOT NULL
);
CREATE SEQUENCE laneway.seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE TABLE laneway.inbox (
    seq bigint DEFAULT nextval('laneway.seq'::regclass) NOT NULL,
    xid xid8 DEFAULT pg_current_xact_id() NOT NULL,
    id text NOT NULL COLLATE pg_catalog."C",
    queue text NOT NULL COLLATE pg_catalog."C",
    task text NOT NULL COLLATE pg_catalog."C",
    lane text COLLATE pg_catalog."C",
    rank smallint NOT NULL,
    delay bigint NOT NULL,
    at bigint NOT NULL,
    unique_key text COLLATE pg_catalog."C",
    end_key text COLLATE pg_catalog."C",
    expires bigint NOT NULL,
    body bytea NOT NULL,
    gather text,
    score double precision
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0', vacuum_truncate=off);
CREATE TABLE laneway.job (
    seq bigint NOT NULL,
    id text NOT NULL COLLATE pg_catalog."C",
    queue text NOT NULL COLLATE pg_catalog."C",
    task text NOT NULL COLLATE pg_catalog."C",
    lane text COLLATE pg_catalog."C",
    rank smallint NOT NULL,
    place bigint NOT NULL,
    due bigint NOT NULL,
    state smallint NOT NULL,
    holds smallint DEFAULT 0 NOT NULL,
    ran smallint DEFAULT 0 NOT NULL,
    attempt integer DEFAULT 0 NOT NULL,
    enqueued bigint NOT NULL,
    unique_key text COLLATE pg_catalog."C",
    end_key text COLLATE pg_catalog."C",
    expires bigint,
    worker text COLLATE pg_catalog."C",
    token bigint,
    mark text,
    lost text,
    errors bytea,
    notes bytea,
    side smallint,
    next_due bigint,
    next_since bigint,
    score double precision,
    finish bytea,
    line_from bigint,
    body bytea NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='20000', autovacuum_analyze_scale_factor='0', autovacuum_analyze_threshold='100000', autovacuum_vacuum_cost_delay='0', vacuum_truncate=off);
CREATE TABLE laneway.learned (
    task text NOT NULL COLLATE pg_catalog."C",
    seen bytea NOT NULL
);
CREATE TABLE laneway.meta (
    only_row boolean DEFAULT true NOT NULL,
    version integer NOT NULL,
    move text,
    closed boolean DEFAULT false NOT NULL,
    CONSTRAINT meta_only_row_check CHECK (only_row)
);
CREATE TABLE laneway.origin (
    only_row boolean DEFAULT true NOT NULL,
    xid xid8 NOT NULL,
    relation oid NOT NULL,
    CONSTRAINT origin_only_row_check CHECK (only_row)
);
CREATE TABLE laneway.payload (
    lane bigint NOT NULL,
    side smallint NOT NULL,
    score double precision NOT NULL,
    arrival bigint NOT NULL,
    digest bytea NOT NULL,
    body bytea NOT NULL,
    headers text
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='20000', autovacuum_analyze_scale_factor='0', autovacuum_analyze_threshold='100000', autovacuum_vacuum_cost_delay='0', vacuum_truncate=off);
CREATE TABLE laneway.queue (
    name text NOT NULL COLLATE pg_catalog."C",
    paused boolean DEFAULT false NOT NULL,
    paused_by text DEFAULT ''::text NOT NULL,
    paused_at bigint DEFAULT 0 NOT NULL,
    collects boolean DEFAULT false NOT NULL
);
CREATE SEQUENCE laneway.quiet
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE TABLE laneway.recent (
    last bigint NOT NULL,
    runs text NOT NULL
);
CREATE TABLE laneway.report (
    number bigint NOT NULL,
    at bigint NOT NULL,
    report bytea NOT NULL
);
ALTER TABLE laneway.report ALTER COLUMN number ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME laneway.report_number_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE laneway.reporter (
    worker text NOT NULL COLLATE pg_catalog."C",
    number bigint NOT NULL,
    at bigint NOT NULL
);
CREATE TABLE laneway.schedule (
    name text NOT NULL COLLATE pg_catalog."C",
    last_slot bigint,
    paused_by text,
    entry bytea
);
CREATE SEQUENCE laneway.score
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE TABLE laneway.source (
    queue text NOT NULL COLLATE pg_catalog."C",
    source text NOT NULL COLLATE pg_catalog."C",
    number bigint NOT NULL
);
CREATE SEQUENCE laneway.special
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE SEQUENCE laneway.token
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE TABLE laneway.worker (
    id text NOT NULL COLLATE pg_catalog."C",
    beat bigint NOT NULL,
    at bigint NOT NULL,
    info bytea NOT NULL,
    command text
)
WITH (fillfactor='50');
ALTER TABLE ONLY laneway.arrived
    ADD CONSTRAINT arrived_pkey PRIMARY KEY (at, queue, task);
ALTER TABLE ONLY laneway.books
    ADD CONSTRAINT books_pkey PRIMARY KEY (only_row);
ALTER TABLE ONLY laneway.counted
    ADD CONSTRAINT counted_pkey PRIMARY KEY (queue);
ALTER TABLE ONLY laneway.counter
    ADD CONSTRAINT counter_pkey PRIMARY KEY (name);
ALTER TABLE ONLY laneway.fault
    ADD CONSTRAINT fault_pkey PRIMARY KEY (id);
ALTER TABLE ONLY laneway.fence
    ADD CONSTRAINT fence_pkey PRIMARY KEY (worker);
ALTER TABLE ONLY laneway.figures
    ADD CONSTRAINT figures_pkey PRIMARY KEY (level, at);
ALTER TABLE ONLY laneway.finished
    ADD CONSTRAINT finished_id_key UNIQUE (id);
ALTER TABLE ONLY laneway.finished
    ADD CONSTRAINT finished_pkey PRIMARY KEY (seq);
ALTER TABLE ONLY laneway.inbox
    ADD CONSTRAINT inbox_pkey PRIMARY KEY (seq);
ALTER TABLE ONLY laneway.learned
    ADD CONSTRAINT learned_pkey PRIMARY KEY (task);
ALTER TABLE ONLY laneway.meta
    ADD CONSTRAINT meta_pkey PRIMARY KEY (only_row);
ALTER TABLE ONLY laneway.origin
    ADD CONSTRAINT origin_pkey PRIMARY KEY (only_row);
ALTER TABLE ONLY laneway.payload
    ADD CONSTRAINT payload_pkey PRIMARY KEY (lane, side, score, arrival);
ALTER TABLE ONLY laneway.queue
    ADD CONSTRAINT queue_pkey PRIMARY KEY (name);
ALTER TABLE ONLY laneway.recent
    ADD CONSTRAINT recent_pkey PRIMARY KEY (last);
ALTER TABLE ONLY laneway.report
    ADD CONSTRAINT report_pkey PRIMARY KEY (number);
ALTER TABLE ONLY laneway.reporter
    ADD CONSTRAINT reporter_pkey PRIMARY KEY (worker);
ALTER TABLE ONLY laneway.schedule
    ADD CONSTRAINT schedule_pkey PRIMARY KEY (name);
ALTER TABLE ONLY laneway.source
    ADD CONSTRAINT source_pkey PRIMARY KEY (queue, source);
ALTER TABLE ONLY laneway.worker
    ADD CONSTRAINT worker_pkey PRIMARY KEY (id);
CREATE INDEX fault_last ON laneway.fault USING btree (last);
CREATE INDEX finished_until ON laneway.finished USING btree (until);
CREATE INDEX inbox_lane ON laneway.inbox USING btree (queue, lane) WHERE (lane IS NOT NULL);
CREATE INDEX inbox_xid ON laneway.inbox USING btree (xid);
CREATE INDEX job_dead ON laneway.job USING btree (due, seq) WHERE ((state = 5) AND (holds = 0));
CREATE INDEX job_due ON laneway.job USING btree (queue, rank, due, place, seq) WHERE ((state < 3) AND (lane IS NULL));
CREATE INDEX job_due_lane ON laneway.job USING btree (queue, due, place, seq) INCLUDE (lane) WHERE ((state < 3) AND (lane IS NOT NULL));
CREATE INDEX job_expires ON laneway.job USING btree (queue) WHERE ((state < 3) AND (expires IS NOT NULL));
CREATE INDEX job_holder ON laneway.job USING btree (queue, lane, place, seq) WHERE (holds = 1);
CREATE UNIQUE INDEX job_id ON laneway.job USING btree (id);
CREATE INDEX job_later ON laneway.job USING btree (queue, due) WHERE (state = ANY ('{0,2}'::smallint[]));
CREATE INDEX job_line ON laneway.job USING btree (queue, lane, place, seq) WHERE ((state <= 3) AND (lane IS NOT NULL));
CREATE INDEX job_marked ON laneway.job USING btree (worker) WHERE (mark IS NOT NULL);
CREATE INDEX job_parked ON laneway.job USING btree (queue, lane, place, seq) WHERE (state = 3);
CREATE INDEX job_running ON laneway.job USING btree (token) WHERE (state = 4);
CREATE INDEX job_seq ON laneway.job USING btree (seq);
CREATE UNIQUE INDEX job_unique ON laneway.job USING btree (unique_key) WHERE (unique_key IS NOT NULL);
CREATE INDEX ledger_xid ON laneway.ledger USING btree (xid);
CREATE UNIQUE INDEX payload_equal ON laneway.payload USING btree (lane, side, digest);
