-- What was told is remembered for two days, so that a replica that starts later does not tell it again.
with old as (
  delete from notice where grp = $1 and until < now() - interval '2 days'
), released as (
  delete from notice where grp = $1 and id = any($3) and holder = $4
)
update notice set told = true where grp = $1 and id = any($2)
