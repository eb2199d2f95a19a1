select name, version, value from file
where grp = $1 and not exists (
  select from unnest($2::text[], $3::bigint[]) as known(name, version)
  where known.name = file.name and known.version = file.version
)
