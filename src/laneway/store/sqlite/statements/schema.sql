-- schema.sql: the tables, except those of statistics.

-- One row. All counts are in it, so that a step of the store writes only one page of the file for them.
create table laneway_meta (
    only_row integer primary key check (only_row = 1),
    version  integer not null,
    books    blob not null,                -- as JSON, see books.py
    tail     blob not null                 -- the most recent runs as JSON, a comma after each; if full, moved to laneway_recent
) strict;

-- The counts of a queue, except for the first queues, which are in the books.
create table laneway_queue (
    name    text primary key,
    counted blob not null                  -- as JSON, see port.py
) strict, without rowid;

create table laneway_job (
    seq        integer primary key,        -- second half of the place; a replayed job gets a new one, a rescheduled job may
    id         text not null unique,
    queue      text not null,
    task       text not null,
    lane       text,
    rank       integer not null,           -- minus the priority: the walk goes from low to high
    place      integer not null,           -- first half of the place, microseconds
    due        integer not null,           -- when it may be claimed; of a dead job: when it died
    state      integer not null,           -- see rows.py; of a waiting job: its state at the last write of the row
    holds      integer not null default 0, -- 1: this job holds its lane; a dead one too if its death halts it
    ran        integer not null default 0, -- 1: it has started: a run was settled, or lost with its worker
    attempt    integer not null default 0, -- attempts that counted
    enqueued   integer not null,
    unique_key text,                       -- equal jobs have equal keys; null from its first claim on, or from its death
    expires    integer,                    -- the job does not start after this time; null once it has started
    worker     text,                       -- the worker that runs it
    token      integer,                    -- the token of its claim
    mark       text,                       -- a request for the run: cancel, delete, kill
    lost       text,                       -- why the previous claim was lost: crash, timeout; null once a run has come to an end
    errors     blob,                       -- the last errors, as JSON, see error_history.py
    notes      blob,                       -- progress and log lines of the run, as JSON
    -- A collector's lane that waits or runs is a row too (its id is the lane's), and so is each of its dead payloads.
    side       integer,                    -- of a lane: the side where payloads gather now, 0 or 1; the run's are on the other side
    next_due   integer,                    -- of a running lane: when the gathering payloads are due; null: none gather
    next_since integer,                    -- of a running lane: since when payloads gather
    score      real,                       -- of a dead payload
    body       blob not null,              -- empty for a lane; for a dead payload the payload
    end_key    text,                       -- the unique key, if it lasts until the job's end: also of a dead one, for a replay
    finish     blob                        -- if a user's transaction has finished the run: its FinishMark, as JSON
) strict;

-- The payloads of collectors' lanes. A waiting lane has all of them on its side.
create table laneway_payload (
    lane    integer not null,              -- the seq of its lane's row
    side    integer not null,
    score   real not null,
    arrival integer not null,              -- orders payloads with equal scores; from the sequence of seq
    digest  blob not null,                 -- of the body: equal payloads have equal digests
    body    blob not null,
    headers text,                          -- JSON objects, one per line; null: none
    primary key (lane, side, score, arrival)
) strict, without rowid;
create unique index laneway_equal on laneway_payload (lane, side, digest);

create index laneway_due on laneway_job (queue, rank, due, place, seq) where $waits;
create index laneway_parked on laneway_job (queue, lane, place, seq) where state = $blocked;
create index laneway_running on laneway_job (token) where state = $running;
-- A dead job that holds its lane is never trimmed, so it is not in this index.
create index laneway_dead on laneway_job (due, seq) where state = $dead and holds = 0;
-- A lane has one holder: this index refuses a second.
create unique index laneway_holder on laneway_job (queue, lane) where holds = 1;
-- Of equal jobs (with one unique key) only one waits.
create unique index laneway_unique on laneway_job (unique_key) where unique_key is not null;

create table laneway_recent (
    last integer primary key,              -- the number of the last run in this row
    runs blob not null                     -- some runs, as in laneway_meta.tail
) strict;

-- Finished jobs of tasks that keep their results. The columns are those of a job, as it was when its run ended.
create table laneway_finished (
    seq        integer primary key,
    id         text not null unique,
    queue      text not null,
    task       text not null,              -- empty: an older version kept its result, and nothing else is known
    lane       text,
    rank       integer not null,
    place      integer not null,
    due        integer not null,           -- when its run ended
    state      integer not null,           -- done or cancelled
    attempt    integer not null,
    enqueued   integer not null,
    worker     text,                       -- the worker that ran it
    errors     blob,
    notes      blob,
    started    integer not null,           -- when its last run began, microseconds
    until      integer not null,           -- kept until this time, microseconds
    value      blob,                       -- its result as JSON; null if it was cancelled
    body       blob not null
) strict;
create index laneway_finished_until on laneway_finished (until);

create table laneway_worker (
    id      text primary key,
    beat    integer not null,              -- a number that grows with every beat
    at      integer not null,              -- when it last beat, microseconds
    info    blob not null,                 -- its WorkerInfo, as JSON
    command text                           -- what its next beat is answered with
) strict, without rowid;

create table laneway_schedule (
    name      text primary key,
    last_slot integer,                     -- occurrences up to this time have fired or were skipped, microseconds; null: none yet
    paused_by text,                        -- the name given with the pause, may be empty; null: it is not paused
    entry     blob                         -- the call and when it runs, as JSON, see schedules.py; null: it is declared in code
) strict, without rowid;

create table laneway_counter (
    name  text primary key,
    value integer not null
) strict, without rowid;

-- The highest number that each queue has taken from each outbox.
create table laneway_source (
    queue  text not null,
    source text not null,                  -- the outbox
    number integer not null,               -- its highest number that this queue has taken
    primary key (queue, source)
) strict, without rowid;
