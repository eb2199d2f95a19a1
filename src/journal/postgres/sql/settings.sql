-- Every statement finds its rows by their keys. These tables fill and empty so fast that what the
-- planner believes of them is wrong: it would read all of a table for one row. The limits of time are
-- the bridge's, as cancelling a statement that waits for a standby commits it.
set search_path to {schema};
set statement_timeout = 0;
set plan_cache_mode = force_generic_plan;
set enable_seqscan = off;
set enable_bitmapscan = off;
set enable_hashjoin = off;
set enable_mergejoin = off;
set jit = off
