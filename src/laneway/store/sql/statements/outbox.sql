-- outbox.sql: what queues have taken of outboxes. See relay.py.

-- source_hold: the highest number that a queue has taken of a source. Nobody else changes it until the turn ends.
-- returns number
insert into laneway_source as old (queue, source, number) values (:queue, :source, 0)
on conflict (queue, source) do update set number = old.number
returning number

-- source_take: a queue has taken more of a source.
update laneway_source set number = :number where queue = :queue and source = :source

-- source_taken: the highest number that any queue has taken of a source.
-- returns number or null
select max(number) from laneway_source where source = :source

-- sources: what a queue has taken.
-- returns source, number
select source, number from laneway_source where queue = :queue

-- take_source: insert what a queue had taken before it was copied.
insert into laneway_source (queue, source, number) values (:queue, :source, :number)
on conflict (queue, source) do update set number = excluded.number
