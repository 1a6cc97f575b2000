-- 0003.sql: the tables of version 3: one sequence more than in version 2, and one unique index less.

-- This sequence has a value as soon as a queue becomes a collector's, or a copy closes the store. While it has none, a push need
-- not read the tables `queue` and `meta`, and saves one statement.
create sequence $schema.special;
do $$ begin
    if exists (select 1 from $schema.queue where collects) or exists (select 1 from $schema.meta where closed) then
        perform nextval('$schema.special');
    end if;
end $$;

-- These numbers come from a sequence, so they are unique anyway. A unique index is searched once more before each insert.
drop index $schema.job_seq;
create index job_seq on $schema.job (seq);
