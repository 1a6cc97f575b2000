-- figures_find.sql: one bucket.
-- takes level, at
-- returns figures
select figures from laneway_figures where level = ? and at = ?
