with me as (
  insert into replica (id, grp, host, version) values ($1, $2, $3, $4)
  returning id, number, generation
), beat as (
  insert into heartbeat (replica) select id from me
)
select number, generation from me
