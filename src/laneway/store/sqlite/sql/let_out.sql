-- let_out.sql: the lane's next by place becomes its holder, and due. The lane had a holder that has just left.
-- takes queue, lane
update laneway_job set state = 0, holds = 1
where seq = (select seq from laneway_job where state = 2 and queue = ? and lane = ? order by place, seq limit 1)
