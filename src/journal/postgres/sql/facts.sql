select current_setting('server_version_num')::int, pg_is_in_recovery(),
  current_setting('synchronous_commit'), current_setting('synchronous_standby_names'),
  to_regclass($1) is not null
