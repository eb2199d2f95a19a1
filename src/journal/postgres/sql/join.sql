with me as (
  insert into replica (id, grp, host, version) values ($1, $2, $3, $4)
  returning id, generation
), beat as (
  insert into heartbeat (replica) select id from me
)
select generation from me
