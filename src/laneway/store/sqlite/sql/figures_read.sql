-- figures_read.sql: the buckets of a level from a time on.
-- takes level, since
-- returns at, figures
select at, figures from laneway_figures where level = ? and at >= ? order by at
