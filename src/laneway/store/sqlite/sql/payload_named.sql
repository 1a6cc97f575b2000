-- payload_named.sql: a payload of one side, by its digest.
-- takes lane, side, digest; returns body, score, arrival
select body, score, arrival from laneway_payload where lane = ? and side = ? and digest = ?
