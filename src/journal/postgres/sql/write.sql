-- Writes one batch, if this replica lives and still drives the runs that the rows belong to.
-- The locks make a takeover wait for a batch that is not committed yet: a mere condition would read the
-- row as it was before. They are taken in one order, so that batches do not deadlock. No index has
-- `is not distinct from`: a run is looked for by its slot, not among all of its owner.
with me as materialized (
  select id from replica where id = $1 and generation = $2 and session = $3 for share
), begun as (
  insert into run (slot, grp, name, needs, owner, epoch, is_over)
  select row.slot, $4, row.name, string_to_array(needs, ','), me.id, 1, row.slot = any($10::bigint[])
  from me
  cross join unnest($5::bigint[], $6::bytea[], $27::text[], $32::bytea[]) as row(slot, name, needs, owner)
  -- A run that had no owner, and that another replica has driven since, may have ended.
  where row.owner is null or (
    select true from record where grp = $4 and record.id = row.owner and holder is distinct from me.id
  ) is null
  order by row.slot
  on conflict do nothing
  returning slot
), mine as materialized (
  select run.slot, run.is_over
  from me cross join unnest($7::bigint[], $8::bigint[]) as given(slot, epoch)
  join run on run.slot = given.slot and run.epoch = given.epoch and run.owner is not distinct from me.id
  order by run.slot for share of run
), held as (
  select slot, false as is_over from begun union select slot, is_over from mine
), ended as (
  -- Of $9, other replicas may take the runs. Those of $10 have ended.
  update run set
    owner = case when slot = any($9::bigint[]) then null else owner end,
    epoch = case when slot = any($9::bigint[]) then epoch + 1 else epoch end,
    is_over = is_over or slot = any($10::bigint[])
  where (slot = any($9::bigint[]) or slot = any($10::bigint[])) and slot in (select slot from mine)
), forgotten as (
  delete from run where slot = any($11::bigint[]) and slot in (select slot from mine)
), removed as (
  delete from record
  where grp = $4 and id = any($12::bytea[])
    and (run in (select slot from held)
      -- A request is its beginner's, and one that was inherited stays.
      or ((run is null or kind = 'long') and exists (select from me) and case
        when kind = 'request'
        then holder = $1 and convert_from(value, 'UTF8')::jsonb->>'lost' is null
        else true
      end))
), cleared as (
  delete from record
  where run = any($13::bigint[]) and run in (select slot from held) and kind in ('call', 'answer')
    and not id = any($12::bytea[]) and not id = any($14::bytea[]) and not id = any($19::bytea[])
), unclaimed as (
  delete from claim where run = any($11::bigint[]) and run in (select slot from mine)
), claimed as (
  -- Of the drivers that may read a call, in an eval and in its agent run, one sends it, or refuses it.
  insert into claim (grp, id, run)
  select distinct on (row.claim) $4, row.claim, row.run
  from me cross join unnest($30::bytea[], $31::bigint[]) as row(claim, run)
  where row.run in (select slot from held)
  order by row.claim
  on conflict (grp, id) do update set run = claim.run where claim.run = excluded.run
  returning id
), put as (
  insert into record (grp, id, key, kind, run, holder, value, attempts, dispatches)
  select $4, row.id, row.key, row.kind, row.run, me.id, row.value, row.attempts, row.dispatches
  from me cross join unnest(
    $14::bytea[], $15::bytea[], $16::text[], $17::bigint[], $18::bytea[], $25::int[], $26::boolean[],
    $28::bytea[]
  ) as row(id, key, kind, run, value, attempts, dispatches, claim)
  where (row.run is null or row.run in (select slot from held))
    and (row.claim is null or row.claim in (select id from claimed))
  order by row.id
  on conflict (grp, id) do update set
    value = excluded.value, holder = excluded.holder,
    attempts = excluded.attempts, dispatches = excluded.dispatches
  -- A replica that gets a run back may have two drivers of it that have read the same stage of a call.
  where not excluded.dispatches or record.attempts < excluded.attempts
  returning key, dispatches
), late as materialized (
  -- The runs of answers that a replica brings after it was taken over. The run's owner may be removing the
  -- calls at this moment, each with the answer that it has posted. Without the lock, which waits for its
  -- commit, the snapshot would still show the call, and the table no answer: the late one would be the first.
  select slot from run
  where slot = any($22::bigint[]) and slot not in (select slot from held) and not is_over
  order by slot for no key update
), first as (
  -- The first answer that is durable wins. It is not fenced: a replica that was taken over may bring it,
  -- if it has sent the call. Requests with an Idempotency-Key are fenced, and of no run.
  insert into record (grp, id, key, kind, run, holder, value)
  select $4, row.id, row.key, row.kind, row.run, (select id from me), row.value
  from unnest(
    $19::bytea[], $20::bytea[], $21::text[], $22::bigint[], $23::bytea[], $24::bytea[], $29::boolean[],
    $33::bytea[]
  ) as row(id, key, kind, run, value, call, is_owners, claim)
  where (not row.is_owners or row.run in (select slot from held))
  -- Another driver may send the call.
  and (row.claim is null or row.claim in (select id from claimed))
  -- Once its run has ended, a call is gone; a replica that gets the run back then may still bring an
  -- answer. (`exists` would be made a set of all records.)
  and ((select true from record where grp = $4 and record.id = row.call
      and (row.run in (select slot from held) or row.run in (select slot from late)))
    or (row.call = any($14::bytea[]) and row.run in (select slot from held where not is_over))
    or (row.run is null and exists (select from me)))
  order by row.id
  on conflict (grp, id) do nothing
  returning key
)
select true as lives, null::bigint as slot, null::bytea as key from me
union all select null, slot, null from held
union all select null, null, key from first
union all select null, null, key from put where dispatches
