-- claimed_unique.sql: a job is claimed for the first time: from now on it stands in no equal job's way.
-- takes seq
update laneway_job set unique_key = null where seq = ?
