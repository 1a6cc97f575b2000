-- note.sql: what a run tells about itself, if it still holds its claim.
-- takes notes, id, token
update laneway_job set notes = ? where id = ? and token = ? and state = 3
