-- payloads_number.sql: how many are on one side of a lane, counted so far.
-- takes lane, side, how far; returns how many
select count(*) from (select 1 from laneway_payload where lane = ? and side = ? limit ?)
