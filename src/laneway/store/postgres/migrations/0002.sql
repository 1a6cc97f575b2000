-- 0002.sql: the tables of version 2: those of version 1, and a note of where they were made.

-- The transaction that wrote this row, and the table it is in. Both are true here; a dump takes them along, and elsewhere they are not.
create table $schema.origin (
    only_row boolean primary key default true check (only_row),
    xid      xid8 not null,
    relation oid not null
);
