-- 0003.sql: the tables of version 3: those of version 2, and a sequence; an index less is unique.

-- It has a value from the moment on at which a queue becomes a collector's, or a copy closes the store. Until then a push need not read
-- the tables that tell: for that it would need a statement more.
create sequence $schema.special;
do $$ begin
    if exists (select 1 from $schema.queue where collects) or exists (select 1 from $schema.meta where closed) then
        perform nextval('$schema.special');
    end if;
end $$;

-- The numbers come from a sequence. A unique index would be searched once more for each new job, before it is inserted.
drop index $schema.job_seq;
create index job_seq on $schema.job (seq);
