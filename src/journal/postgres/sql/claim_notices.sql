-- A row is the replica's that claimed it, for a minute from its last claim. Who claims a row first gives the
-- notice its id, which the next one keeps.
insert into notice (grp, id, message, holder, until)
select $1, claimed.id, claimed.message, $2, now() + interval '1 minute'
from unnest($3::text[], $4::text[]) as claimed (id, message)
order by claimed.id
on conflict (grp, id) do update set holder = excluded.holder, until = excluded.until
where notice.holder = excluded.holder or notice.until < now()
returning id, message, told
