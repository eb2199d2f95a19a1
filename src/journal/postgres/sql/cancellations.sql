-- For half a minute: each replica looks every second, and one may be taking a run over meanwhile.
with old as (
  delete from cancellation where grp = $1 and since < now() - interval '30 seconds' returning id
)
select value from cancellation where grp = $1 and id not in (select id from old)
