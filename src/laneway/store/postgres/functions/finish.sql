-- finish.sql: a user's transaction finishes a run.

-- finish: mark a claim as finished. This transaction holds the lock of the job's row until it ends. p_claim is JSON: {"version":
-- …, "id": …, "token": …, "mark": …}; the mark is a FinishMark, as text. The lane and the counts do not change here: the job
-- leaves the store, and its lane goes on, with the next exchange of its worker, or when that worker is recovered. Until then jobs
-- of the lane can be pushed and parked as usual. LW002: the claim is not held, or a user asked to end the run. LW009: the claim
-- is finished already.
--
-- Its name has no version, and a migration replaces it instead of dropping it: so rights that were granted on it stay. It runs
-- with the rights of its owner (security definer).
create or replace function $schema.finish(p_claim text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp $planner $patience as $$
declare
    v_given json := p_claim::json;
    v_found record;
begin
    if v_given ->> 'version' is distinct from '$number' then
        raise exception 'the functions of Laneway have version $number, and this program wants %', v_given ->> 'version' using errcode = 'LW008';
    end if;
    update $schema.job set finish = convert_to(v_given ->> 'mark', 'UTF8')
    where state = $running and token = (v_given ->> 'token')::bigint and id = v_given ->> 'id' and mark is null and finish is null;
    if found then
        return;
    end if;
    select mark, finish into v_found from $schema.job
    where state = $running and token = (v_given ->> 'token')::bigint and id = v_given ->> 'id';
    if v_found.finish is not null then
        raise exception 'finished' using errcode = 'LW009';
    end if;
    raise exception '%', coalesce(v_found.mark, 'taken') using errcode = 'LW002';
end $$;

-- open: of the claims that a worker settles, lock the rows that no other transaction has locked. Return the tokens of the other
-- claims that the worker holds: an open transaction is finishing these.
create function $schema.open_$version(p_worker text, p_tokens bigint[]) returns setof bigint language plpgsql volatile $planner as $$
declare
    v_free bigint[] := array(
        select token from $schema.job where state = $running and token = any (p_tokens) and worker = p_worker order by id for update skip locked);
begin
    if cardinality(v_free) < cardinality(p_tokens) then
        return query
        select token from $schema.job where state = $running and token = any (p_tokens) and worker = p_worker and token <> all (v_free);
    end if;
end $$;
