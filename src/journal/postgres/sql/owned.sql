select key, value from record
where grp = $1 and kind = 'owner' and run is null
  and substring(key from 1 for length($2::bytea)) = $2::bytea
  and substring(value from 1 for length($3::bytea)) = $3::bytea
limit 20000
