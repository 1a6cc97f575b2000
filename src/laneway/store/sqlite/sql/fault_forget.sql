-- fault_forget.sql: forget a kind of failure.
-- takes id
delete from laneway_fault where id = ?
