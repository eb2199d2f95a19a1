-- What has ended is shown for a minute, so that every replica sees how.
with old as (
  delete from approval
  where grp = $1 and least(ended_at, deadline) < now() - interval '1 minute' returning id
)
select id, ended, by_person, case when id = any($2) then null else value end
from approval where grp = $1 and id not in (select id from old)
