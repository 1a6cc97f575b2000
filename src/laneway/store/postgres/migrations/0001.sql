-- 0001.sql: the tables of version 1.
-- Names are compared byte by byte (collate "C"), as in the other stores. The columns of `job` are described in SQLite's
-- schema.sql.

create table $schema.meta (
    only_row boolean primary key default true check (only_row),
    version  integer not null,
    move     text,                          -- the store's part in a copy, JSON, see transfer.py
    closed   boolean not null default false -- whether that copy has closed the store: no pushes, no claims
);
insert into $schema.meta (version) values (0);

create sequence $schema.seq;
create sequence $schema.token;
create sequence $schema.score;  -- the last score that was given to a payload, microseconds
create sequence $schema.clock;  -- the highest time that was stored: a sequence is updated in place, without dead rows
create sequence $schema.quiet;  -- every push that began before this time has committed or rolled back: see line_head

-- Most rows exist for milliseconds. So autovacuum starts after a fixed number of dead rows and does not pause. It never truncates
-- the file, since that would lock the table.
create table $schema.job (
    seq        bigint not null,
    id         text collate "C" not null,
    queue      text collate "C" not null,
    task       text collate "C" not null,
    lane       text collate "C",
    rank       smallint not null,
    place      bigint not null,
    due        bigint not null,
    state      smallint not null,           -- of a waiting job: its state at the last write of the row, as the counts have it
    holds      smallint not null default 0,
    ran        smallint not null default 0,
    attempt    integer not null default 0,
    enqueued   bigint not null,
    unique_key text collate "C",
    end_key    text collate "C",
    expires    bigint,
    worker     text collate "C",
    token      bigint,
    mark       text,
    lost       text,
    errors     bytea,
    notes      bytea,
    side       smallint,
    next_due   bigint,
    next_since bigint,
    score      double precision,
    finish     bytea,
    line_from  bigint,                      -- of a lane's holder: no other job of the lane has an earlier place than this
    body       bytea not null
) with (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_analyze_scale_factor = 0,
    autovacuum_analyze_threshold = 100000, autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off
);
create unique index job_seq on $schema.job (seq);
create unique index job_id on $schema.job (id);
create unique index job_unique on $schema.job (unique_key) where unique_key is not null;
-- A waiting job is in one of these two indexes: a walk over jobs without lanes reads no jobs in lanes, and each lane is examined
-- once.
create index job_due on $schema.job (queue, rank, due, place, seq) where $waits and lane is null;
create index job_due_lane on $schema.job (queue, due, place, seq) include (lane) where $waits and lane is not null;
create index job_later on $schema.job (queue, due) where state = any ('{$scheduled,$retrying}');
create index job_expires on $schema.job (queue) where $waits and expires is not null;
create index job_line on $schema.job (queue, lane, place, seq) where state <= $blocked and lane is not null;
create index job_parked on $schema.job (queue, lane, place, seq) where state = $blocked;
-- Not unique: an insert into a unique index checks all dead entries of its key, and a busy lane leaves one for each job.
create index job_holder on $schema.job (queue, lane, place, seq) where holds = 1;
create index job_running on $schema.job (token) where state = $running;
create index job_marked on $schema.job (worker) where mark is not null;
create index job_dead on $schema.job (due, seq) where state = $dead and holds = 0;

create table $schema.payload (
    lane    bigint not null,
    side    smallint not null,
    score   double precision not null,
    arrival bigint not null,
    digest  bytea not null,
    body    bytea not null,
    headers text,
    primary key (lane, side, score, arrival)
) with (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_analyze_scale_factor = 0,
    autovacuum_analyze_threshold = 100000, autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off
);
create unique index payload_equal on $schema.payload (lane, side, digest);

-- Jobs and payloads that were enqueued in users' transactions and must be compared with others: after the commit they are moved
-- to the jobs, see enqueue.sql.
create table $schema.inbox (
    seq        bigint primary key default nextval('$schema.seq'),
    xid        xid8 not null default pg_current_xact_id(),
    id         text collate "C" not null,
    queue      text collate "C" not null,
    task       text collate "C" not null,
    lane       text collate "C",
    rank       smallint not null,
    delay      bigint not null,
    at         bigint not null,
    unique_key text collate "C",
    end_key    text collate "C",
    expires    bigint not null,
    body       bytea not null,
    gather     text,                        -- of a payload: how it gathers, JSON
    score      double precision
) with (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off
);
create index inbox_xid on $schema.inbox (xid);
create index inbox_lane on $schema.inbox (queue, lane) where lane is not null;

create table $schema.queue (
    name      text collate "C" primary key,
    paused    boolean not null default false,
    paused_by text not null default '',
    paused_at bigint not null default 0,
    collects  boolean not null default false
);

-- What each step counted, one row or a few. Rows are only added; see fold.sql.
create table $schema.ledger (
    xid       xid8 not null default pg_current_xact_id(),
    at        bigint not null,
    queue     text collate "C",
    task      text collate "C",             -- the task whose jobs arrived
    arrived   integer not null default 0,
    scheduled integer not null default 0,   -- by how much the number of jobs in this state changed
    ready     integer not null default 0,
    retrying  integer not null default 0,
    blocked   integer not null default 0,
    running   integer not null default 0,
    dead      integer not null default 0,
    totals    jsonb,                        -- counters since the store was created
    runs      text,                         -- finished runs as JSON, a comma after each
    number    integer not null default 0    -- how many runs
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off);
alter table $schema.ledger alter column runs set storage external;
create index ledger_xid on $schema.ledger (xid);

-- The sums of all rows of the ledger that are visible in the snapshot `snap`.
create table $schema.books (
    only_row boolean primary key default true check (only_row),
    snap     pg_snapshot not null default pg_current_snapshot(),
    totals   jsonb not null default '{}',
    cleared  xid8 not null default '0',     -- rows of the ledger before this transaction are deleted
    runs     bigint not null default 0,     -- the number of the last run in the table `recent`
    closed   bigint not null default 0      -- statistics up to this time are summed, microseconds
) with (fillfactor = 10);
insert into $schema.books default values;
create table $schema.counted (
    queue     text collate "C" primary key,
    scheduled bigint not null,
    ready     bigint not null,
    retrying  bigint not null,
    blocked   bigint not null,
    running   bigint not null,
    dead      bigint not null
) with (fillfactor = 50);

create table $schema.recent (
    last bigint primary key,
    runs text not null
);

create table $schema.finished (
    seq      bigint primary key,
    id       text collate "C" not null unique,
    queue    text collate "C" not null,
    task     text collate "C" not null,
    lane     text collate "C",
    rank     smallint not null,
    place    bigint not null,
    due      bigint not null,
    state    smallint not null,
    attempt  integer not null,
    enqueued bigint not null,
    worker   text collate "C",
    errors   bytea,
    notes    bytea,
    started  bigint not null,
    until    bigint not null,
    value    bytea,
    body     bytea not null
);
create index finished_until on $schema.finished (until);

create table $schema.worker (
    id      text collate "C" primary key,
    beat    bigint not null,
    at      bigint not null,
    info    bytea not null,
    command text
) with (fillfactor = 50);

-- Exchanges of a worker count only if they carry this number. A row is inserted when a worker begins, and deleted when its claims
-- are taken back: an exchange that is still on its way then changes nothing. This is not a column of `worker`, because each
-- exchange would read the dead rows that heartbeats leave there. Unlogged: after a crash of the server the table is empty, so
-- each worker learns of the crash, and gives back the claims that it does not know.
create unlogged table $schema.fence (
    worker text collate "C" primary key,
    epoch  bigint not null
);

create table $schema.schedule (
    name      text collate "C" primary key,
    last_slot bigint,
    paused_by text,
    entry     bytea
);

create table $schema.source (
    queue  text collate "C" not null,
    source text collate "C" not null,
    number bigint not null,
    primary key (queue, source)
);

create table $schema.counter (
    name  text collate "C" primary key,
    value bigint not null
);

create table $schema.figures (
    level   bigint not null,
    at      bigint not null,
    figures bytea not null,
    primary key (level, at)
);

create table $schema.report (
    number bigint primary key generated always as identity,
    at     bigint not null,
    report bytea not null
);

create table $schema.arrived (
    at     bigint not null,
    queue  text collate "C" not null,
    task   text collate "C" not null,
    number bigint not null,
    primary key (at, queue, task)
);

create table $schema.reporter (
    worker text collate "C" primary key,
    number bigint not null,
    at     bigint not null
);

create table $schema.fault (
    id     text collate "C" primary key,
    count  bigint not null,
    first  bigint not null,
    last   bigint not null,
    sample bytea not null
);
create index fault_last on $schema.fault (last);

create table $schema.learned (
    task text collate "C" primary key,
    seen bytea not null
);
