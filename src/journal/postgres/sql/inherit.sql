-- The same for what is of no run: long calls by hand, and requests with an Idempotency-Key.
with me as materialized (
  select id from replica where id = $1 and generation = $2 for share
)
update record set holder = me.id from me
where grp = $3 and run is null and kind in ('long', 'request')
  and (holder = any($4) or not exists (select from replica where id = holder))
returning key, value
