-- meta_write.sql: write them back; the write lock makes that safe.
-- takes the same twelve, in the same order
update laneway_meta
set now = ?, seq = ?, token = ?, enqueued = ?, processed = ?, failed = ?, retried = ?, dead = ?, cancelled = ?,
    recovered = ?, refused = ?, runs = ?
