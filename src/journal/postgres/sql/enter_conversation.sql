with before as materialized (
  select context, task from conversation where grp = $1 and id = $2 for update
)
update conversation set task = null, used = now()
from before where grp = $1 and id = $2
returning before.context, before.task
