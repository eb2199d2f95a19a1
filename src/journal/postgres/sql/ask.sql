-- The next owner of a run asks again what its calls had asked; what a person has decided by then still
-- counts.
insert into approval (grp, id, holder, value, deadline)
select $1, $2, replica.id, $5, $6 from replica where replica.id = $3 and generation = $4
on conflict (grp, id) do update set
  holder = excluded.holder, deadline = excluded.deadline,
  ended = case when approval.by_person then approval.ended end,
  ended_at = case when approval.by_person then approval.ended_at end
