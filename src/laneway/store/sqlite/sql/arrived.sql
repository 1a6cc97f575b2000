-- arrived.sql: what arrived and is not added up.
-- returns at, queue, task, number
select at, queue, task, number from laneway_arrived
