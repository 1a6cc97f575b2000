-- arrived_drop.sql: it is added up.
-- takes up to when
delete from laneway_arrived where at < ?
