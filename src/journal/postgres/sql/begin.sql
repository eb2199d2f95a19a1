update replica set session = session + 1 where id = $1 and generation = $2 returning session
