-- The runs that this replica has taken over without hearing of it. Those that begin with it have the first
-- epoch. Any replica may drive one to which the app shows its credential.
update run set waits = exists (
  select from record
  where record.run = run.slot and kind = 'run'
    and convert_from(value, 'UTF8')::json->>'callers_credential' = 'true'
)
where owner = $1 and epoch > 1
  and not exists (select from unnest($2::bigint[], $3::bigint[]) known (slot, epoch)
    where known.slot = run.slot and known.epoch = run.epoch)
returning slot, epoch
