-- exchange.sql: delete the jobs that succeeded, and claim due jobs, in one step. Other outcomes, and lanes of collectors, are
-- settled and claimed by the client's statements, in the same transaction.
--
-- An exchange first takes all locks that it may wait for: the worker's, then those of the lanes that it settles, in one order. The
-- walk waits for no lock: it tries those of lanes, and skips rows that another transaction has locked. So no two exchanges wait for
-- each other. Each statement has a new snapshot, so it sees what was committed before a lock was granted.

-- claimed: a claim. The last row (part -1) is about the whole exchange: `id` has the refused tokens, `attempt` whether more jobs
-- are due, `due` when the next job is due (null: none), `place` the store's time, `lost` whether the client must empty the inbox,
-- `seq` whether walks were cut short, `enqueued` how many entries and blocks the call read of the indexes that walks use, and `task`
-- how many entries of those by lane (0: `p_lines` would not have saved any), dead ones included. Unlike its duration this shows the
-- amount of work on a busy server too, `queue` how often due jobs were put back to the front, `line_from` the earliest due time of the jobs that became holders of their lanes (null: none; no floor may be set after it; nor by
-- an answer to an exchange that was sent before), and `token` which walks found no more: for the n-th queue, from 0, bit 2 n for jobs
-- without lanes, 2 n + 1 for lanes (null: there was no walk, see p_near).
create type $schema.claimed_$version as (
    part integer, token bigint, id text, task text, queue text, lane text, attempt integer, enqueued bigint, due bigint, place bigint,
    seq bigint, lost text, body bytea, line_from bigint
);

-- expire: delete jobs that expired before they started, and count them as cancelled. The lanes that they held get their next
-- holders.
create function $schema.expire_$version(p_now bigint, p_seqs bigint[]) returns integer language plpgsql volatile as $$
declare
    v_number integer;
    v_queues text[];
    v_lanes text[];
    v_next bigint[];
begin
    with gone as (
        delete from $schema.job where seq = any (p_seqs) returning id, task, queue, lane, enqueued, state, holds
    ), counted as (
        insert into $schema.ledger (at, queue, scheduled, ready, retrying, blocked, totals, runs, number)
        select p_now, queue, - count(*) filter (where state = $scheduled), - count(*) filter (where state = $ready),
               - count(*) filter (where state = $retrying), - count(*) filter (where state = $blocked),
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
                    select seq, expires, place from $schema.job j
                    where j.queue = u.queue and j.lane = u.lane and j.state = $blocked order by place, seq limit 1000 - v_number
                ) j
            ) f where f.old
        );
        if cardinality(v_next) > 0 then
            v_number := v_number + $schema.expire_$version(p_now, v_next);
        end if;
        perform $schema.let_out_$version(p_now, v_queues, v_lanes);
    end if;
    return v_number;
end $$;

-- park: park those of these jobs that are due and do not hold their lane. The caller holds the locks of the lanes.
create function $schema.park_$version(p_now bigint, p_queue text, p_seqs bigint[]) returns integer language plpgsql volatile as $$
declare
    v_number integer;
begin
    with given as materialized (
        select seq, state, lane from $schema.job where seq = any (p_seqs) and $waits and holds = 0
    ), held as materialized (  -- lane by lane: a plan made for a small table must not read whole lanes of a large one
        select l.lane from (select distinct lane from given) l, lateral (
            select 1 from $schema.job h where h.queue = p_queue and h.lane = l.lane and h.holds = 1 order by place desc, seq desc limit 1
        ) h
    ), met as materialized (
        select seq, state from given where lane in (select lane from held)
    ), moved as (
        update $schema.job j set state = $blocked from met m where j.seq = m.seq returning m.state
    ), counted as (
        insert into $schema.ledger (at, queue, blocked, ready, scheduled, retrying)
        select p_now, p_queue, count(*), - count(*) filter (where state = $ready), - count(*) filter (where state = $scheduled),
               - count(*) filter (where state = $retrying)
        from moved having count(*) > 0
    )
    select count(*) into v_number from moved;
    return v_number;
end $$;

-- has_due: whether jobs of a queue are due, as seen by walks that begin at these floors.
create function $schema.has_due_$version(p_now bigint, p_queue text, p_floor bigint[], p_lane_floor bigint[]) returns boolean
language plpgsql volatile as $$
declare
    v_rank smallint := -1000;
begin
    if exists (
        select 1 from $schema.job
        where $waits and lane is null and queue = p_queue and rank = 0 and due <= p_now
        and (due, place, seq) >= (p_floor[1], p_floor[2], p_floor[3])
    ) or exists (
        select 1 from $schema.job
        where $waits and lane is not null and queue = p_queue and due <= p_now
        and (due, place, seq) >= (p_lane_floor[1], p_lane_floor[2], p_lane_floor[3])
    ) then
        return true;
    end if;
    -- The other ranks: none of these statements reads the dead entries of rank 0.
    while v_rank < 0 loop
        select coalesce(min(rank), 0) into v_rank from $schema.job
        where $waits and lane is null and queue = p_queue and rank > v_rank and rank < 0;
        perform 1 from $schema.job where $waits and lane is null and queue = p_queue and rank = v_rank and rank < 0 and due <= p_now limit 1;
        if found then return true; end if;
    end loop;
    loop
        select min(rank) into v_rank from $schema.job where $waits and lane is null and queue = p_queue and rank > v_rank;
        exit when v_rank is null;
        perform 1 from $schema.job where $waits and lane is null and queue = p_queue and rank = v_rank and due <= p_now limit 1;
        if found then return true; end if;
    end loop;
    return false;
end $$;

-- exchange: p_tokens and p_runs are successes, p_queues and p_lanes the lanes that these hold; p_wants and p_most are the steps of the
-- claim; p_floors and p_lane_floors are due, place and seq for each of them, from where walks of jobs without and with lanes begin;
-- p_full: a walk from there that finds fewer jobs than wanted begins again at the front. If a walk has not been at the front, the
-- answer says so (`seq`), and the client asks again.
-- p_near: until this time, look no further than to the next job of the lane that goes on, if there is one. Not 0 only if one job of a
-- lane is settled, the lane's queue is wanted, and the client has just learned that nothing else is due.
-- p_lines: by queue and lane, what the client remembers of `line_from`: all jobs of the lane have this place or a later one. It stays
-- true, since places only grow. Where an old snapshot is in use anywhere, the walk would otherwise read the dead rows of all jobs that left the lane.
-- p_durable: commit synchronously in any case.
create function $schema.exchange_$version(
    p_worker text, p_epoch bigint, p_tokens bigint[], p_runs text[], p_queues text[], p_lanes text[], p_wants text[], p_most integer[],
    p_limit integer, p_floors bigint[], p_lane_floors bigint[], p_full boolean, p_near bigint, p_lines jsonb, p_durable boolean
) returns setof $schema.claimed_$version language plpgsql volatile $planner $patience as $$
declare
    v_now bigint := $schema.begin_exchange_$version(p_worker, p_epoch, p_queues, p_lanes);
    v_quiet bigint := $schema.quiet_$version(v_now);
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
    v_alone boolean;                     -- one job of a lane was done, and nothing but the lane's next job is due; then: that job was claimed
    v_claim record;                      -- that job, and where the lane's live jobs begin
    v_walked bigint := $walked;
    v_lined bigint := $lined;
begin
    v_alone := v_now < p_near;
    if v_alone or cardinality(p_tokens) = 1 and p_wants = p_queues and p_limit > 0 and p_most[1] > 0 then
        -- The short branch: one job of a lane was done. Usually the next job of that lane is the only one that is due, and the
        -- duration of an exchange limits the lane's speed. So this settles and claims with one statement, after one that looks
        -- around, which only some of the exchanges need.
        if not v_alone then
            select not (exists (
                    select 1 from $schema.job where $waits and lane is null and queue = p_wants[1] and rank < 0
                ) or exists (
                    select 1 from $schema.job where $waits and lane is null and queue = p_wants[1] and rank > 0
                ) or exists (
                    select 1 from $schema.job where $waits and lane is null and queue = p_wants[1] and rank = 0 and due <= v_now
                    and (due, place, seq) >= (case when not p_full then p_floors[1] else 0 end, p_floors[2], p_floors[3])
                ) or exists (
                    select 1 from $schema.job where $waits and lane is not null and queue = p_wants[1] and due <= v_now
                    and (due, place, seq) >= (case when not p_full then p_lane_floors[1] else 0 end, p_lane_floors[2], p_lane_floors[3])
                    and seq <> coalesce((
                        select h.seq from (select $live from $schema.job where $ours and token = p_tokens[1]) g,
                        lateral $schema.line_head_$version(v_now, p_wants[1], p_lanes[1], g.live_from, g.live_seq) h
                    ), 0)
                )), exists (select 1 from $schema.inbox), (
                    select due from $schema.job
                    where queue = p_wants[1] and state = any ('{$scheduled,$retrying}') and due > v_now order by due limit 1
                )
            into v_alone, v_inbox, v_next_due;
        end if;
        if v_alone then
            with gone as (
                delete from $schema.job where $ours and token = p_tokens[1] returning $live
            ), head as (
                select h.tid, h.state from gone g, $schema.queue q,
                lateral $schema.line_head_$version(v_now, q.name, p_lanes[1], g.live_from, g.live_seq) h
                where q.name = p_queues[1] and not q.paused and not q.collects and coalesce(h.expires >= v_now, true) and not exists (
                    select 1 from $schema.inbox i where i.queue = q.name and i.lane = p_lanes[1] and i.gather is null  -- see joins
                )
            ), claimed as (
                update $schema.job j set $claims, token = $token from head h where j.ctid = h.tid
                returning j.token, j.id, j.task, j.lane, j.attempt, j.enqueued, j.due, j.place, j.seq, j.lost, j.body, j.line_from, h.state
            ), counted as (
                insert into $schema.ledger (at, queue, ready, scheduled, retrying, blocked, totals, runs, number)
                select v_now, p_queues[1], - (state = $ready)::integer, - (state = $scheduled)::integer, - (state = $retrying)::integer,
                       - (state = $blocked)::integer, '{"processed": 1}', p_runs[1] || ',', 1
                from claimed
            )
            select g.*, c.* into v_claim from gone g left join claimed c on true;
            v_done := (v_claim.live_from is not null)::integer;
            v_done_queue := p_queues[1];
            v_alone := v_claim.token is not null;
        end if;
    end if;
    if v_alone then
        return next row(
            1500, v_claim.token, v_claim.id, v_claim.task, v_done_queue, v_claim.lane, v_claim.attempt, v_claim.enqueued, v_claim.due,
            v_claim.place, v_claim.seq, v_claim.lost, v_claim.body, v_claim.line_from)::$schema.claimed_$version;
        v_claimed := 1;
        v_nothing := case when v_now >= p_near then 3 end;
        v_cut := v_now >= p_near and not p_full and (p_floors[1] > 0 or p_lane_floors[1] > 0);
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
        v_first bigint[] := p_floors;        -- as p_floors and p_lane_floors; where a walk begins at the front: the first job there
        v_lane_first bigint[] := p_lane_floors;
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
        if v_in_lanes and $schema.joins_$version(p_queues, p_lanes) is null then null; end if;
        if v_done > 0 then
            v_next_queues := p_queues; v_lanes := p_lanes; v_places := array[v_claim.live_from];
            v_seqs := array[v_claim.live_seq];
        elsif cardinality(p_tokens) > 0 then
            -- The exit: delete the jobs whose claims the worker holds.
            with gone as (
                delete from $schema.job where $ours and token = any (p_tokens)
                returning token, queue, lane, $live
            )
            select array_agg(token), array_agg(queue), min(queue), array_agg(queue) filter (where lane is not null),
                   array_agg(lane) filter (where lane is not null), array_agg(live_from) filter (where lane is not null),
                   array_agg(live_seq) filter (where lane is not null)
            into v_gone, v_queues, v_done_queue, v_next_queues, v_lanes, v_places, v_seqs from gone;
            if coalesce(cardinality(v_gone), 0) < cardinality(p_tokens) then
                v_refused := array(select t from unnest(p_tokens) t where v_gone is null or t <> all (v_gone));
                p_runs := array(select r from unnest(p_tokens, p_runs) u(t, r) where t = any (v_gone));
                insert into $schema.ledger (at, totals) values (v_now, jsonb_build_object('refused', cardinality(v_refused)));
            end if;
            v_done := coalesce(cardinality(v_gone), 0);
            if v_done > 0 and v_done_queue <> any (v_queues) then
                -- The records of all runs are in the row of one queue.
                insert into $schema.ledger (at, queue, running, totals, runs, number)
                select v_now, q, - count(*), jsonb_build_object('processed', count(*)),
                       case when q = v_done_queue then array_to_string(p_runs, ',') || ',' end, case when q = v_done_queue then v_done else 0 end
                from unnest(v_queues) q group by q;
                v_done := 0;
            end if;
        end if;
        if v_lanes is not null then
            -- Find the next job of each of their lanes.
            select array_agg(h.seq), array_agg(h.tid), array_agg(h.state), array_agg(h.due), array_agg(h.place), array_agg(h.fresh),
                   array_agg(h.parked), array_agg(h.queue)
            into v_next, v_next_tids, v_next_states, v_next_dues, v_next_places, v_next_fresh, v_next_parked, v_next_queues
            from (
                select h.seq, h.tid, h.state, h.due, h.place, h.expires is null or h.expires >= v_now as fresh, h.parked, u.queue
                from unnest(v_next_queues, v_lanes, v_places, v_seqs) u(queue, lane, place, seq),
                lateral $schema.line_head_$version(v_now, u.queue, u.lane, u.place, u.seq) h
                order by h.due, h.place, h.seq
            ) h;
        end if;
        for i in 1 .. cardinality(p_wants) loop
            exit when v_left <= 0 or v_passed >= 1000;
            -- Each part reads only its own range of an index: the rest may be full of dead entries of claimed jobs.
            select q.name, q.paused, q.collects,
                   (select min(rank) from $schema.job where $waits and lane is null and queue = q.name and rank < 0) as above,
                   exists (select 1 from $schema.job where $waits and queue = q.name and expires is not null) as expires,
                   (
                       select array[due, place, seq] from $schema.job
                       where $waits and lane is not null and queue = q.name and due <= v_now
                       and (due, place, seq) >= (p_lane_floors[3 * i - 2], p_lane_floors[3 * i - 1], p_lane_floors[3 * i])
                       order by due, place, seq limit 1
                   ) as laned,
                   case when v_next is not null or p_floors[3 * i - 2] = 0 then (
                       select array[due, place, seq] from $schema.job
                       where $waits and lane is null and queue = q.name and rank = 0 and due <= v_now
                       and (due, place, seq) >= (p_floors[3 * i - 2], p_floors[3 * i - 1], p_floors[3 * i])
                       order by due, place, seq limit 1
                   ) end as plain
            into v_queue from $schema.queue q where q.name = p_wants[i];
            continue when not found or v_queue.paused;
            if v_queue.collects then
                raise exception '%', v_queue.name using errcode = 'LW005';
            end if;
            -- The next statements begin at the first job: they need not read the dead entries before it again.
            v_lane_first[3 * i - 2 : 3 * i] := coalesce(v_queue.laned, '{9223372036854775807,0,0}');
            if p_floors[3 * i - 2] = 0 then
                v_first[3 * i - 2 : 3 * i] := coalesce(v_queue.plain, '{9223372036854775807,0,0}');
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
                if cardinality(v_next) > v_number and $schema.hold_lanes_$version(
                    v_now, v_quiet, v_next[v_number + 1 :], v_next_states[v_number + 1 :], v_next_parked[v_number + 1 :])
                then
                    v_laned := true;
                    v_held := v_next_dues[v_number + 1];
                    if p_lane_floors[3 * i - 2] > v_held then
                        p_lane_floors[3 * i - 2] := v_held; p_lane_floors[3 * i - 1] := 0; p_lane_floors[3 * i] := 0;
                    end if;
                    if v_lane_first[3 * i - 2] >= v_held then
                        v_lane_first[3 * i - 2 : 3 * i] := array[v_held, 0, 0];
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
                v_floor := case when v_rank = 0 then v_first[3 * i - 2 : 3 * i] else '{0,0,0}' end;
                v_after := array[v_lane_first[3 * i - 2], v_lane_first[3 * i - 1], v_lane_first[3 * i] - 1];
                v_behind := v_rank = 0 and (p_floors[3 * i - 2] > 0 or p_lane_floors[3 * i - 2] > 0 and (v_laned or p_full));
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
                                select seq, due, place, lane from $schema.job
                                where $waits and lane is not null and queue = v_queue.name and due <= v_now
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
                                v_locked := array(select l from unnest(v_met) l where pg_try_advisory_xact_lock($schema.lane_key(v_queue.name, l)));
                            elsif pg_try_advisory_xact_lock($schema.lane_key(v_queue.name, v_met[1])) then
                                v_locked := v_met;
                            end if;
                            v_more := v_more or cardinality(v_locked) < cardinality(v_met);
                            v_in_lanes := true;
                            if $schema.joins_$version(array_fill(v_queue.name, array[cardinality(v_locked)]), v_locked) is null then null; end if;
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
                                    select seq, ctid as tid, state, due, place, expires from $schema.job
                                    where queue = v_queue.name and lane = l.lane and holds = 1 and place >= l.line_from
                                    order by place desc, seq desc limit 1
                                ) h on true
                                left join lateral $schema.line_head_$version(
                                    v_now, v_queue.name, case when h.seq is null then l.lane end, l.line_from, 0) f on true
                                where h.seq is null and f.seq is not null or h.state < $blocked and h.due <= v_now
                                union all
                                select * from (
                                    select seq, ctid, state, due, place, expires from $schema.job
                                    where $waits and lane is null and queue = v_queue.name and rank = v_rank and due <= v_now
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
                            select u.tid, u.state, $token as token from unnest(v_tids[1 : v_number], v_states[1 : v_number]) u(tid, state)
                            union all
                            select w.tid, w.state, $token from (
                                select w.ctid as tid, w.state from $schema.job w
                                where v_plain and $waits and w.lane is null and w.queue = v_queue.name and w.rank = v_rank and w.due <= v_now
                                and (w.due, w.place, w.seq) >= (v_floor[1], v_floor[2], v_floor[3])
                                order by w.due, w.place, w.seq limit v_want - v_number for update skip locked
                            ) w
                        ), claimed as (
                            update $schema.job j
                            set $claims, token = c.token
                            from chosen c where j.ctid = c.tid returning j.*, c.state as before
                        ), counted as (
                            insert into $schema.ledger (at, queue, running, ready, scheduled, retrying, blocked, totals, runs, number)
                            select v_now, v_queue.name, count(*) - d.done, - count(*) filter (where before = $ready),
                                   - count(*) filter (where before = $scheduled), - count(*) filter (where before = $retrying),
                                   - count(*) filter (where before = $blocked), case when d.done > 0 then jsonb_build_object('processed', d.done) end,
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
                                + $schema.expire_$version(v_now, array(select s from unnest(v_chosen, v_fresh) u(s, f) where not f));
                            v_after := '{-1,-1,-1}';  -- other jobs came to the front: look again before the others are claimed
                            v_lane_first := p_lane_floors;
                        end if;
                        if v_seqs is distinct from v_chosen[1 : v_number] then
                            v_seqs := array(
                                select s from unnest(v_seqs, v_dues, v_places, v_lanes) u(s, d, p, l)
                                where l = any (v_locked) and s <> all (v_chosen)
                                and (v_short or (d, p, s) < (v_keys[v_last][1], v_keys[v_last][2], v_keys[v_last][3])) limit 1000 - v_passed
                            );
                            if cardinality(v_seqs) > 0 then
                                v_passed := v_passed + $schema.park_$version(v_now, v_queue.name, v_seqs);
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
                                        select 1 from $schema.job where $waits and lane is not null and queue = v_queue.name and due <= v_now);
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
                    select coalesce(min(rank), 0) into v_rank from $schema.job
                    where $waits and lane is null and queue = v_queue.name and rank > v_rank and rank < 0;
                else
                    select min(rank) into v_rank from $schema.job
                    where $waits and lane is null and queue = v_queue.name and rank > v_rank;
                end if;
                if v_rank is null then
                    v_ended := v_ended || v_queue.name::text;
                    exit;
                end if;
            end loop;
            v_left := v_left + greatest(v_want, 0);
        end loop;
        if v_next is not null and $schema.hold_lanes_$version(v_now, v_quiet, v_next, v_next_states, v_next_parked) then
            v_held := v_next_dues[1];
        end if;
        if v_done > 0 then
            insert into $schema.ledger (at, queue, running, totals, runs, number)
            values (v_now, v_done_queue, - v_done, jsonb_build_object('processed', v_done), array_to_string(p_runs, ',') || ',', v_done);
        end if;
        for i in 1 .. cardinality(p_wants) loop
            exit when v_more;
            continue when p_wants[i] = any (v_ended) and v_passed < 1000;
            continue when exists (select 1 from $schema.queue where name = p_wants[i] and paused);
            v_more := $schema.has_due_$version(v_now, p_wants[i], v_first[3 * i - 2 : 3 * i], v_lane_first[3 * i - 2 : 3 * i]);
            if not v_more and (p_floors[3 * i - 2] > 0 or p_lane_floors[3 * i - 2] > 0) then
                v_cut := v_cut or not p_full;
                v_more := p_full and $schema.has_due_$version(v_now, p_wants[i], '{0,0,0}', '{0,0,0}');
            end if;
        end loop;
        v_next_due := null;
        if not v_more then
            select min(f.due) into v_next_due
            from $schema.queue q, lateral (
                select j.due from $schema.job j
                where j.queue = q.name and j.state = any ('{$scheduled,$retrying}') and j.due > v_now order by j.due limit 1
            ) f
            where q.name = any (p_wants) and not q.paused;
        end if;
        v_inbox := exists (select 1 from $schema.inbox);
        if not p_durable and not v_in_lanes then
            -- Do not wait for the disk: if the server crashes, some of these jobs run again, and none is lost. Not for jobs in
            -- lanes: two of them could then run at once.
            perform set_config('synchronous_commit', 'off', true);
        end if;
    end;
    end if;
    return next row(
        -1, v_nothing, array_to_string(v_refused, ','), (case when v_alone then 0 else $lined - v_lined end)::text,
        coalesce(pg_sequence_last_value('$schema.back'), 0)::text, null, v_more::integer, $walked - v_walked, v_next_due, v_now, v_cut::integer,
        case when v_inbox and p_limit > v_claimed then 'inbox' end, ''::bytea, v_held
    )::$schema.claimed_$version;
end $$;

-- queue_due: whether jobs of a queue are due, and when the first later one is due.
create function $schema.queue_due_$version(p_now bigint, p_queue text) returns table (more boolean, next_due bigint)
language plpgsql volatile as $$
#variable_conflict use_column
begin
    return query
    select $schema.has_due_$version(p_now, p_queue, '{0,0,0}', '{0,0,0}'),
           (select min(due) from $schema.job where queue = p_queue and state = any ('{$scheduled,$retrying}') and due > p_now);
end $$;
