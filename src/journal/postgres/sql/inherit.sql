-- The same for what is of no run: long calls by hand, and requests with an Idempotency-Key. Of a request
-- without an answer, it is not known any more what it has done, unless its replica still brings that.
with me as materialized (
  select id from replica where id = $1 and generation = $2 for share
), old as (
  delete from record where grp = $3 and run is null and kind = 'request' and case
    when kind = 'request'
    then (convert_from(value, 'UTF8')::jsonb->>'begun_at')::numeric
      < extract(epoch from now() - interval '2 days') * 1000
  end
)
update record set holder = me.id, value = case
  when kind = 'request' and convert_from(value, 'UTF8')::jsonb->>'answer' is null
  then convert_to((convert_from(value, 'UTF8')::jsonb || '{"lost": true}')::text, 'UTF8')
  else value
end
from me
where grp = $3 and run is null and kind in ('long', 'request')
  and (holder = any($4) or not exists (select from replica where id = holder))
returning key, value
