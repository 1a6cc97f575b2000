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
CREATE TYPE laneway.claimed_v1 AS (
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
	body bytea
);
CREATE FUNCTION laneway.begin_exchange_v1(p_worker text, p_queues text[], p_lanes text[]) RETURNS bigint
    LANGUAGE plpgsql
    AS '';
CREATE FUNCTION laneway.check_epoch_v1(p_worker text, p_epoch bigint) RETURNS void
    LANGUAGE plpgsql
    AS '';
CREATE FUNCTION laneway.check_jobs_v1(p_jobs json) RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    AS '';
CREATE FUNCTION laneway.check_primary() RETURNS void
    LANGUAGE plpgsql
    AS '';
CREATE FUNCTION laneway.counts_v1(p_now bigint) RETURNS TABLE(queue text, scheduled bigint, ready bigint, retrying bigint, blocked bigint, running bigint, dead bigint)
    LANGUAGE plpgsql STABLE
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS '';
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
    AS '';
CREATE FUNCTION laneway.enrol_v1(p_worker text, OUT epoch bigint, OUT moved text, OUT started text) RETURNS record
    LANGUAGE plpgsql
    AS '';
CREATE FUNCTION laneway.enter_queue_v1(p_queue text, p_inside boolean) RETURNS void
    LANGUAGE plpgsql
    AS '';
CREATE FUNCTION laneway.error_has(p_errors bytea, p_text text) RETURNS boolean
    LANGUAGE plpgsql IMMUTABLE
    AS '';
CREATE FUNCTION laneway.exchange_v1(p_worker text, p_epoch bigint, p_tokens bigint[], p_runs text[], p_queues text[], p_lanes text[], p_wants text[], p_most integer[], p_limit integer, p_floors bigint[], p_lane_floors bigint[], p_full boolean, p_alike boolean, p_durable boolean) RETURNS SETOF laneway.claimed_v1
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET lock_timeout TO '1500ms'
    AS '';
CREATE FUNCTION laneway.expire_v1(p_now bigint, p_seqs bigint[]) RETURNS integer
    LANGUAGE plpgsql
    AS '';
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
    AS '';
CREATE FUNCTION laneway.fold_v1(p_ten bigint, p_keep bigint) RETURNS boolean
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS '';
CREATE FUNCTION laneway.has_due_v1(p_now bigint, p_queue text, p_floor bigint[], p_lane_floor bigint[]) RETURNS boolean
    LANGUAGE plpgsql
    AS '';
CREATE FUNCTION laneway.hold_lanes_v1(p_now bigint, p_quiet bigint, p_seqs bigint[], p_states smallint[], p_parked boolean[]) RETURNS boolean
    LANGUAGE plpgsql
    AS '';
CREATE FUNCTION laneway.hold_v1(p_ids text[]) RETURNS void
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS '';
CREATE FUNCTION laneway.joins_v1(p_queues text[], p_lanes text[]) RETURNS void
    LANGUAGE plpgsql
    AS '';
CREATE FUNCTION laneway.lane_key(p_queue text, p_lane text) RETURNS bigint
    LANGUAGE sql IMMUTABLE
    AS '';
CREATE FUNCTION laneway.let_out_v1(p_now bigint, p_queues text[], p_lanes text[]) RETURNS void
    LANGUAGE plpgsql
    AS '';
CREATE FUNCTION laneway.line_head_v1(p_now bigint, p_queue text, p_lane text, p_from bigint) RETURNS TABLE(seq bigint, state smallint, due bigint, place bigint, expires bigint, parked boolean, tid tid)
    LANGUAGE sql STABLE
    AS '';
CREATE FUNCTION laneway.lock_lanes(p_queues text[], p_lanes text[]) RETURNS void
    LANGUAGE plpgsql
    AS '';
CREATE FUNCTION laneway.next_score(p_now bigint) RETURNS double precision
    LANGUAGE sql
    AS '';
CREATE FUNCTION laneway.next_token() RETURNS bigint
    LANGUAGE sql
    AS '';
CREATE FUNCTION laneway.now_us() RETURNS bigint
    LANGUAGE sql
    AS '';
CREATE FUNCTION laneway.open_v1(p_worker text, p_tokens bigint[]) RETURNS SETOF bigint
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS '';
CREATE FUNCTION laneway.park_v1(p_now bigint, p_queue text, p_seqs bigint[]) RETURNS integer
    LANGUAGE plpgsql
    AS '';
CREATE FUNCTION laneway.push_lanes_v1(p_seqs bigint[], p_ids text[], p_queues text[], p_tasks text[], p_lanes text[], p_dues bigint[], p_states smallint[], p_now bigint) RETURNS SETOF bigint
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS '';
CREATE FUNCTION laneway.push_v1(p_ids text[], p_bodies bytea[], p_queues text[], p_tasks text[], p_lanes text[], p_ranks smallint[], p_delays bigint[], p_ats bigint[], p_uniques text[], p_end_keys text[], p_expires bigint[], p_replaces boolean, p_inside boolean, OUT prevented text[], OUT rings boolean) RETURNS record
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET lock_timeout TO '1500ms'
    AS '';
CREATE FUNCTION laneway.queue_due_v1(p_now bigint, p_queue text) RETURNS TABLE(more boolean, next_due bigint)
    LANGUAGE plpgsql
    AS '';
CREATE FUNCTION laneway.quiet_v1(p_now bigint) RETURNS bigint
    LANGUAGE plpgsql
    AS '';
CREATE FUNCTION laneway.reach_v1(p_now bigint, p_seq bigint) RETURNS void
    LANGUAGE plpgsql
    AS '';
CREATE FUNCTION laneway.refuse_v1() RETURNS boolean
    LANGUAGE plpgsql
    AS '';
CREATE FUNCTION laneway.ring_v1() RETURNS void
    LANGUAGE plpgsql
    AS '';
CREATE FUNCTION laneway.set_move_v1(p_move text, p_closed boolean) RETURNS void
    LANGUAGE plpgsql
    AS '';
CREATE FUNCTION laneway.step_by_step_v1(p_now bigint, p_worker text, p_tokens bigint[], p_runs text[], p_queues text[], p_lanes text[], p_wants text[], p_most integer[], p_limit integer, p_floors bigint[], p_lane_floors bigint[], p_full boolean, p_durable boolean, p_claimed integer) RETURNS SETOF laneway.claimed_v1
    LANGUAGE plpgsql
    AS '';
CREATE FUNCTION laneway.step_v1(p_inside boolean DEFAULT false) RETURNS bigint
    LANGUAGE plpgsql
    AS '';
CREATE FUNCTION laneway.take_claims_v1(p_worker text, p_keep bigint[]) RETURNS void
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS '';
CREATE FUNCTION laneway.totals_v1() RETURNS TABLE(name text, value bigint)
    LANGUAGE plpgsql STABLE
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS '';
CREATE FUNCTION laneway.turn_v1(OUT now bigint, OUT moved text) RETURNS record
    LANGUAGE plpgsql
    AS '';
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
CREATE FUNCTION laneway.unfolded_v1() RETURNS SETOF laneway.ledger
    LANGUAGE plpgsql STABLE
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS '';
CREATE FUNCTION laneway.view_v1() RETURNS bigint
    LANGUAGE sql
    AS '';
CREATE TABLE laneway.arrived (
    at bigint NOT NULL,
    queue text NOT NULL COLLATE pg_catalog."C",
    task text NOT NULL COLLATE pg_catalog."C",
    number bigint NOT NULL
);
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
CREATE UNIQUE INDEX job_seq ON laneway.job USING btree (seq);
CREATE UNIQUE INDEX job_unique ON laneway.job USING btree (unique_key) WHERE (unique_key IS NOT NULL);
CREATE INDEX ledger_xid ON laneway.ledger USING btree (xid);
CREATE UNIQUE INDEX payload_equal ON laneway.payload USING btree (lane, side, digest);
