-- note.sql: what a run tells about itself, if it still holds its claim. A collector's claim has several rows.
-- takes notes, token
update laneway_job set notes = ? where token = ? and state = 3
