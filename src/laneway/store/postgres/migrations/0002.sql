-- 0002.sql: the tables of version 2: those of version 1, and a row that says where they were created.

-- The transaction that wrote this row, and the oid of this table. In the cluster that created the row both are right. A dump
-- copies the row, and in another cluster they are wrong.
create table $schema.origin (
    only_row boolean primary key default true check (only_row),
    xid      xid8 not null,
    relation oid not null
);
