-- arrived_add.sql: count what arrived.
-- takes at, queue, task, number
insert into laneway_arrived (at, queue, task, number) values (?, ?, ?, ?)
on conflict (at, queue, task) do update set number = number + excluded.number
