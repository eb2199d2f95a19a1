-- A run that waits for the credential of its app goes to the replica that the app has shown it to.
with me as materialized (
  select id from replica where id = $1 and generation = $2 for share
)
update run set owner = me.id, epoch = run.epoch + 1, waits = false
from me where grp = $3 and name = $4 and waits and not is_over
returning run.slot, run.epoch
