-- No row, if another replica has taken the place of this one.
with beat as (
  update heartbeat set counter = counter + 1 from replica
  where replica.id = heartbeat.replica and replica.id = $1 and generation = $2
  returning replica
)
select id, generation, counter, host, version, since, backends, identities
from replica join heartbeat on replica = id
where grp = $3 and exists (select from beat)
