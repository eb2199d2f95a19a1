with old as (
  delete from conversation where grp = $1 and id <> $2 and used < now() - interval '1 day'
)
insert into conversation (grp, id, context, task) values ($1, $2, $3, $4)
on conflict (grp, id) do update set
  context = excluded.context, task = coalesce(excluded.task, conversation.task), used = now()
