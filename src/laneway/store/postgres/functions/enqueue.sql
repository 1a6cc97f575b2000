-- enqueue.sql: jobs are inserted within a user's transaction, by any driver, language or trigger.

-- enqueue: insert jobs in this transaction. p_jobs is JSON: a job {"task": …}, an array of jobs, or, from Laneway's own client,
-- {"version": …, "jobs": …}. Return for each job its id, or that of the existing job that prevented it, and whether it was
-- inserted.
--
-- Jobs with a unique key and payloads of collectors must be compared with others. Doing that here would wait for the row locks of
-- other open transactions, or make those wait for this one. So these rows are written to the inbox, and `created` is null for
-- them: the next transaction of a worker after the commit moves them to the jobs. Jobs that follow them in their lane go to the
-- inbox too, so that the jobs of one transaction keep their order.
--
-- Its name has no version, and a migration replaces it instead of dropping it: so rights that were granted on it stay. It runs
-- with the rights of its owner (security definer).
create or replace function $schema.enqueue(p_jobs text) returns table (id text, created boolean)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp $planner $patience as $$
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
        if v_given ->> 'version' <> '$number' then
            raise exception 'the functions of Laneway have version $number, and this program wants %', v_given ->> 'version' using errcode = 'LW008';
        end if;
        v_given := v_given -> 'jobs';
    else
        if json_typeof(v_given) = 'object' then
            v_given := json_build_array(v_given);
        end if;
        perform $schema.check_jobs_$version(v_given);
    end if;
    perform pg_current_xact_id();
    perform pg_advisory_xact_lock_shared(hashtextextended('$schema', 83));
    if current_setting('transaction_isolation') <> 'read committed' then
        -- This transaction's snapshot may be older than a copy that has closed or opened the store since: the row lock then
        -- raises a serialization failure.
        perform 1 from $schema.meta for share;
    end if;
    if exists (select 1 from $schema.meta where closed) then
        raise exception 'a copy has closed the store' using errcode = 'LW006';
    end if;
    v_now := $schema.step_$version(true);
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
    if v_looks or exists (select 1 from $schema.inbox where xid = pg_current_xact_id()) then
        v_waits := array(
            select u.key is not null or u.gather is not null or u.lane is not null and (
                bool_or(u.key is not null) over (partition by u.queue, u.lane order by u.n)
                or exists (select 1 from $schema.inbox i where i.xid = pg_current_xact_id() and i.queue = u.queue and i.lane = u.lane))
            from unnest(v_queues, v_lanes, v_uniques, v_gathers) with ordinality u(queue, lane, key, gather, n) order by u.n);
        insert into $schema.inbox (id, queue, task, lane, rank, delay, at, unique_key, end_key, expires, body, gather, score)
        select v_ids[n], v_queues[n], v_tasks[n], v_lanes[n], v_ranks[n], case when v_gathers[n] is null then 0 else v_delays[n] end,
               case when v_gathers[n] is null then greatest(v_ats[n], v_now + v_delays[n]) else v_ats[n] end, v_uniques[n],
               v_end_keys[n], v_expires[n], v_bodies[n], v_gathers[n], case when v_gathers[n] is not null then
                   coalesce((v_gathers[n]::json ->> 'score')::double precision, $schema.next_score(v_now)) end
        from unnest(v_waits) with ordinality u(waits, n) where waits order by n;
        -- The lock keeps the kind of each queue (jobs or lanes) until this transaction ends.
        for v_queue in
            select q as name, bool_or(g is not null) as collects, bool_or(g is null) as has_jobs
            from unnest(v_queues, v_gathers, v_waits) u(q, g, waits) where waits group by q order by q
        loop
            perform pg_advisory_xact_lock_shared(hashtextextended(v_queue.name, hashtextextended('$schema', 78)));
            select collects into v_collects from $schema.queue where name = v_queue.name;
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
        select prevented into v_prevented from $schema.push_$version(
            v_ids, v_bodies, v_queues, v_tasks, v_lanes, v_ranks, v_delays, v_ats, v_uniques, v_end_keys, v_expires, v_replaces,
            true);
        for i in 1 .. coalesce(cardinality(v_prevented), 0) loop
            while v_prevented[i] = '' loop  -- the job that prevented it has just left the store: try again
                select prevented[1] into v_prevented[i] from $schema.push_$version(
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
end $$;

-- check_jobs: raise an error if hand-written JSON does not describe valid jobs.
create function $schema.check_jobs_$version(p_jobs json) returns void language plpgsql immutable as $$
declare
    v_job json;
    v_wrong text;
begin
    if json_typeof(p_jobs) <> 'array' then
        raise exception '$schema.enqueue takes a job as JSON, {"task": …}, or an array of jobs' using errcode = '22023';
    end if;
    for v_job in select * from json_array_elements(p_jobs) loop
        if json_typeof(v_job) <> 'object' then
            raise exception '$schema.enqueue: % is no job: write {"task": …}', v_job using errcode = '22023';
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
            raise exception '$schema.enqueue: %', v_wrong using errcode = '22023';
        end if;
    end loop;
end $$;

-- next_score: the score of the next payload: the store's now in seconds, or a microsecond more than the last score given.
create function $schema.next_score(p_now bigint) returns double precision language sql volatile as $$
    select setval('$schema.score', greatest(last_value + 1, p_now)) / 1000000.0 from $schema.score
$$;

-- joins: raise LW007 if the inbox has jobs of these lanes: they must join the lanes before the next job of any of them is chosen. To be
-- called with the lanes locked, before the choice: jobs that have left the inbox meanwhile are visible to it, and those that come
-- there later were committed late.
create function $schema.joins_$version(p_queues text[], p_lanes text[]) returns void language plpgsql volatile as $$
begin
    if exists (select 1 from $schema.inbox) and exists (
        select 1 from unnest(p_queues, p_lanes) u(queue, lane), $schema.inbox i
        where i.queue = u.queue and i.lane = u.lane and i.gather is null
    ) then
        raise exception 'the inbox has jobs of these lanes' using errcode = 'LW007';
    end if;
end $$;
