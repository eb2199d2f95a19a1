insert into file (grp, name, value) values ($1, $2, $3)
on conflict (grp, name) do update set value = excluded.value, version = file.version + 1
where file.version = $4
returning version
