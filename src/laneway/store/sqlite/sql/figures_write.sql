-- figures_write.sql: keep a bucket.
-- takes level, at, figures
insert into laneway_figures (level, at, figures) values (?, ?, ?)
on conflict (level, at) do update set figures = excluded.figures
