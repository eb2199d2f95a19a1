-- Writes one batch, if this replica lives and still drives the runs that the rows belong to.
-- The locks make whoever takes over wait for a batch that is not committed yet: a mere condition would
-- read the row as it was before. They are taken in one order, so that batches do not deadlock.
with me as materialized (
  select id from replica where id = $1 and generation = $2 and session = $17 for share
), begun as (
  insert into run (slot, grp, owner, epoch)
  select slot, $3, me.id, 1 from me, unnest($4::bigint[]) as slot order by slot
  on conflict do nothing
  returning slot
), mine as materialized (
  select run.slot
  from me cross join unnest($5::bigint[], $6::bigint[]) as given(slot, epoch)
  join run on run.slot = given.slot and run.epoch = given.epoch and run.owner = me.id
  order by run.slot for share of run
), held as (
  select slot from begun union select slot from mine
), forgotten as (
  delete from run where slot = any($7::bigint[]) and slot in (select slot from mine)
), released as (
  update run set owner = null, epoch = epoch + 1
  where slot = any($18::bigint[]) and slot in (select slot from mine)
), removed as (
  delete from record
  where grp = $3 and id in (select sha256(key) from unnest($8::bytea[]) as key)
    and (run in (select slot from held)
      or ((run is null or kind = 'long') and exists (select from me)))
), cleared as (
  delete from record
  where run = any($9::bigint[]) and run in (select slot from held) and kind in ('call', 'answer')
    and not key = any($8::bytea[]) and not key = any($10::bytea[]) and not key = any($14::bytea[])
), put as (
  insert into record (grp, key, kind, run, holder, value)
  select $3, row.key, row.kind, row.run, me.id, row.value
  from me cross join unnest($10::bytea[], $11::text[], $12::bigint[], $13::bytea[])
    as row(key, kind, run, value)
  where row.run is null or row.run in (select slot from held)
  order by row.key
  on conflict (grp, id) do update set value = excluded.value, holder = excluded.holder
), answered as (
  -- Not fenced: the first answer that is durable wins, and a replica that was taken over may bring it.
  insert into record (grp, key, kind, run, value)
  select $3, row.key, 'answer', row.run, row.value
  from unnest($14::bytea[], $15::bigint[], $16::bytea[]) as row(key, run, value)
  where row.run in (select slot from run) or row.run in (select slot from begun)
  order by row.key
  on conflict (grp, id) do nothing
  returning key
)
select true as lives, null::bigint as slot, null::bytea as answer from me
union all select null, slot, null from held
union all select null, null, key from answered
