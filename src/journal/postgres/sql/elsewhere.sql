-- The runs that other replicas drive, or the runs with one id, which may be over.
with found as materialized (
  select slot from run join record on record.run = slot and kind = 'run'
  where run.grp = $1 and owner is distinct from $2
    and ($3::text is null or lower(convert_from(value, 'UTF8')::json->>'run') = lower($3))
    and (not is_over or $3 is not null)
  limit 1000
)
select key, value from record where run in (select slot from found) and kind in ('run', 'call')
