-- Makes this replica the owner of some runs whose owners are dead, or that have none, if it has their
-- backends, or no replica has them. Rows that another survivor has just locked are skipped.
with me as materialized (
  select id from replica where id = $1 and generation = $2 for share
), bite as materialized (
  select slot from run
  where grp = $3 and (owner = any($4) or owner is null)
    and (needs <@ $6::text[] or not exists (
      select from replica other
      where other.grp = $3 and other.id <> all($4) and other.id <> $1 and needs <@ other.backends
    ))
  order by slot limit $5 for update skip locked
)
update run set owner = me.id, epoch = run.epoch + 1, waits = exists (
  select from record
  where record.run = run.slot and kind = 'run'
    and convert_from(value, 'UTF8')::json->>'callers_credential' = 'true'
)
from me, bite where run.slot = bite.slot
returning run.slot, run.epoch
