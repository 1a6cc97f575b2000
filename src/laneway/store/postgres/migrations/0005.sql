-- 0005.sql: the tables of version 5: those of version 4.

-- A `line_from` that is the job's own place now says that the jobs of its lane with this place come after it, see line_head. Those of
-- before do not say that.
update $schema.job set line_from = line_from - 1 where line_from is not null;
