-- schema_statistics.sql: the tables of statistics, added in version 2.

-- Buckets: intervals of ten seconds, minutes and days, and the totals. Each is one value for all queues and tasks, see
-- buckets.py.
create table laneway_figures (
    level   integer not null,              -- its length, microseconds
    at      integer not null,              -- when it began, microseconds
    figures blob not null,
    primary key (level, at)
) strict;

-- Reports of workers that are not summed yet.
create table laneway_report (
    number integer primary key,
    at     integer not null,               -- the interval of ten seconds in which it arrived
    report blob not null
) strict;

-- Arrivals that are not summed yet; the most recent ones are in the books.
create table laneway_arrived (
    at     integer not null,               -- the interval of ten seconds in which they arrived
    queue  text not null,
    task   text not null,
    number integer not null,
    primary key (at, queue, task)
) strict, without rowid;

-- The workers that reported, so that a report that is sent twice counts once.
create table laneway_reporter (
    worker text primary key,
    number integer not null,               -- the number of its last report
    at     integer not null
) strict, without rowid;

create table laneway_fault (
    id     text primary key,
    count  integer not null,
    first  integer not null,               -- when it was first seen, microseconds
    last   integer not null,
    sample blob not null                   -- JSON, see error_groups.py
) strict;
create index laneway_fault_last on laneway_fault (last);

-- What workers learned about tasks, see learn.py.
create table laneway_learned (
    task text primary key,
    seen blob not null                     -- six numbers, JSON
) strict, without rowid;
