delete from replica
where id = any($1) and not exists (select from run where owner = replica.id)
