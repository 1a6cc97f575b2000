-- count_add.sql: add to a counter.
-- takes name, how many
insert into laneway_counter (name, value) values (?, ?)
on conflict (name) do update set value = value + excluded.value
