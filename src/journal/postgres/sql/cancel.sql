-- The same one again is looked at for as long as if it were the first.
insert into cancellation (grp, id, value) values ($1, $2, $3)
on conflict (grp, id) do update set since = now()
