select key, value from record where grp = $1 and id = any($2)
union all
select record.key, record.value
from run join record on record.run = run.slot and kind in ('run', 'call')
where run.grp = $1 and name = any($3)
