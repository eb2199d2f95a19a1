with gone as (
  delete from replica where id = $1 and generation = $2 returning id
)
update run set owner = null, epoch = epoch + 1 from gone where owner = gone.id
