-- migrations.sql: from one version of the tables to the next.

-- to_version_3: jobs' states get the numbers that the counts use, and queues may have their own rows.
drop index laneway_due;
drop index laneway_parked;
drop index laneway_running;
drop index laneway_dead;
update laneway_job set state = case
    when state > 0 then state + 1
    when due > (select json_extract(cast(books as text), '$$.now') from laneway_meta) then $scheduled
    else $ready
end;
create index laneway_due on laneway_job (queue, rank, due, place, seq) where $waits;
create index laneway_parked on laneway_job (queue, lane, place, seq) where state = $blocked;
create index laneway_running on laneway_job (token) where state = $running;
create index laneway_dead on laneway_job (due, seq) where state = $dead and holds = 0;
create table laneway_queue (
    name    text primary key,
    counted blob not null
) strict, without rowid;

-- to_version_4: finished jobs are kept with their results, schedules may be kept in the store, and payloads have headers.
alter table laneway_payload add column headers text;
create table laneway_finished (
    seq        integer primary key,
    id         text not null unique,
    queue      text not null,
    task       text not null,
    lane       text,
    rank       integer not null,
    place      integer not null,
    due        integer not null,
    state      integer not null,
    attempt    integer not null,
    enqueued   integer not null,
    worker     text,
    errors     blob,
    notes      blob,
    started    integer not null,
    until      integer not null,
    value      blob,
    body       blob not null
) strict;
insert into laneway_finished (seq, id, queue, task, rank, place, due, state, attempt, enqueued, started, until, value, body)
select -row_number() over (order by until), id, '', '', 0, 0, 0, $done, 0, 0, 0, until, value, x'' from laneway_result;
drop table laneway_result;
create index laneway_finished_until on laneway_finished (until);
alter table laneway_schedule add column entry blob;

-- to_version_5: a job's unique key may last until the job's end, and a user's transaction may finish a run.
alter table laneway_job add column end_key text;
alter table laneway_job add column finish blob;

-- to_version_6: each queue stores the highest number that it has taken from each outbox.
create table laneway_source (
    queue  text not null,
    source text not null,
    number integer not null,
    primary key (queue, source)
) strict, without rowid;
