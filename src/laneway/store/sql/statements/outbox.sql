-- outbox.sql: the highest number that each queue has taken from each outbox. See relay.py.

-- source_hold: the highest number that a queue has taken from a source. Its row stays locked until the transaction ends.
-- returns number
insert into laneway_source as old (queue, source, number) values (:queue, :source, 0)
on conflict (queue, source) do update set number = old.number
returning number

-- source_take: store the highest number that a queue has taken from a source.
update laneway_source set number = :number where queue = :queue and source = :source

-- source_taken: the highest number that any queue has taken from a source.
-- returns number or null
select max(number) from laneway_source where source = :source

-- sources: the highest number that a queue has taken from each source.
-- returns source, number
select source, number from laneway_source where queue = :queue

-- take_source: insert the highest number that a queue had taken from a source before the copy.
insert into laneway_source (queue, source, number) values (:queue, :source, :number)
on conflict (queue, source) do update set number = excluded.number
