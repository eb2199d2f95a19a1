update replica set generation = generation + 1 where id = $1 and generation = $2
