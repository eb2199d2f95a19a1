-- A task is given to one message. Without one, nothing is written.
with given as materialized (
  select context, task from conversation
  where grp = $1 and id = $2 and task is not null for update
), taken as (
  update conversation set task = null, used = now()
  from given where grp = $1 and id = $2
)
select context, task from given
union all
select context, null from conversation
where grp = $1 and id = $2 and not exists (select from given)
