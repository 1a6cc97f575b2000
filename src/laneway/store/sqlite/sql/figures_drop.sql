-- figures_drop.sql: forget old buckets.
-- takes level, up to when
delete from laneway_figures where level = ? and at < ?
