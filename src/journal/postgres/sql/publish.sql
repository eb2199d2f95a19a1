update replica set backends = $3, identities = $4 where id = $1 and generation = $2
