select key, value from record
where grp = $1 and kind = 'owner' and run is null
  and substring(key from 1 for length($2)) = $2 and substring(value from 1 for length($3)) = $3
limit 20000
