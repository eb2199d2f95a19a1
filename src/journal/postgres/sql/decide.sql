-- The first one to end it does. Only its holder may say that no person has decided.
with before as materialized (
  select ended from approval
  where grp = $1 and id = $2 and ($3::uuid is null or holder = $3) for update
)
update approval set
  ended = coalesce(approval.ended, $4),
  ended_at = coalesce(approval.ended_at, now()),
  by_person = approval.by_person or (approval.ended is null and $3::uuid is null)
from before where grp = $1 and id = $2
returning before.ended
