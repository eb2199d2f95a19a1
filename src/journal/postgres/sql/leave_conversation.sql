-- What stands there already is written again once an hour: its age is all that removes it. An agent that
-- names no conversation leaves no row.
with old as (
  delete from conversation where grp = $1 and id <> $2 and used < now() - interval '1 day'
), known as materialized (
  select context, task, used from conversation where grp = $1 and id = $2
)
insert into conversation (grp, id, context, task)
select $1, $2, $3::text, $4::text
where ($3::text is not null or $4::text is not null or exists (select from known))
  and not exists (
    select from known
    where context is not distinct from $3 and ($4::text is null or task is not distinct from $4)
      and used > now() - interval '1 hour'
  )
on conflict (grp, id) do update set
  context = excluded.context, task = coalesce(excluded.task, conversation.task), used = now()
