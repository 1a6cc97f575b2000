-- moving.sql: a store takes part in a copy.

-- set_move: set the store's part in a copy, and whether the copy closes the store. The locks taken here keep pushes and users'
-- actions out until this transaction ends. It waits for the exchanges that are running; later ones must enrol again, and learn of
-- it there.
create function $schema.set_move_$version(p_move text, p_closed boolean) returns void language plpgsql volatile as $$
declare
    v_closed boolean;
    v_worker text;
begin
    perform pg_advisory_xact_lock(hashtextextended('$schema', 82));
    perform pg_advisory_xact_lock(hashtextextended('$schema', 83));
    perform pg_advisory_xact_lock(hashtextextended('$schema', 85));
    if p_closed then
        perform nextval('$schema.special');
    end if;
    select closed into v_closed from $schema.meta;
    update $schema.meta set move = p_move, closed = p_closed;
    if v_closed <> p_closed then
        for v_worker in select worker from $schema.fence order by worker loop
            perform pg_advisory_xact_lock(hashtextextended(v_worker, 77));
        end loop;
        delete from $schema.fence;
    end if;
end $$;

-- reach: raise the store's time and its sequence numbers to these values, if they are lower.
create function $schema.reach_$version(p_now bigint, p_seq bigint) returns void language plpgsql volatile as $$
begin
    perform setval('$schema.clock', p_now) from $schema.clock where last_value < p_now;
    perform setval('$schema.seq', p_seq) from $schema.seq where last_value < p_seq;
end $$;
