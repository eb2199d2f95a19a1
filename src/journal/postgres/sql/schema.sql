-- The tables of replicas. A later version adds columns and tables, and takes none away for one release.
create schema if not exists {schema};
set search_path to {schema};

-- One row: the version of these tables, and the oldest bridge that may use them.
create table if not exists meta (
  one boolean primary key default true check (one),
  version integer not null,
  min_binary text not null
);
insert into meta (version, min_binary) values (1, '0.1.0') on conflict do nothing;

-- A process of the bridge, from its start to its end. Who raises the generation takes over. The process
-- itself raises the session, with each connection that writes.
create table if not exists replica (
  id uuid primary key,
  grp text not null,
  generation bigint not null default 1,
  session bigint not null default 0,
  host text not null,
  version text not null,
  since timestamptz not null default now(),
  -- The backends that it has, and how each is reached: a hash.
  backends text[] not null default '{}',
  identities text[] not null default '{}'
);
create index if not exists replica_of_group on replica (grp);

-- Apart from the replica's row, which a write locks: a slow write must not hold up a heartbeat.
create table if not exists heartbeat (
  replica uuid primary key references replica on delete cascade,
  counter bigint not null default 1
) with (fillfactor = 50);

-- Which replica drives a run. Each new owner raises the epoch. The name is a hash of what MANTYX calls
-- the run. Beside runs that are over, one may have it.
create table if not exists run (
  slot bigint primary key,
  grp text not null,
  name bytea not null,
  owner uuid,
  epoch bigint not null,
  -- Its owner cannot drive it before its app shows a credential, to any replica.
  waits boolean not null default false,
  -- The backends of its tools.
  needs text[] not null default '{}',
  is_over boolean not null default false
) with (fillfactor = 70);
create index if not exists run_of_owner on run (grp, owner);
create index if not exists run_of_name on run (grp, name);
create unique index if not exists going_run_of_name on run (grp, name) where not is_over;

-- The journal's records, with the keys and values of its file. The id is a hash of the key.
create table if not exists record (
  grp text not null,
  id bytea not null,
  key bytea not null,
  kind text not null,
  run bigint,
  holder uuid,
  -- Of a call: how often it was dispatched, and whether that was its last write.
  attempts integer,
  dispatches boolean not null default false,
  value bytea not null,
  primary key (id, grp)
) with (fillfactor = 70);
create index if not exists record_of_run on record (run) where run is not null;
create index if not exists record_of_kind on record (grp, kind) where run is null;

-- Which run's driver sends a call that the drivers of several runs may read. The id is a hash of the call.
create table if not exists claim (
  grp text not null,
  id bytea not null,
  run bigint not null,
  primary key (grp, id)
);
create index if not exists claim_of_run on claim (run);

-- What the operator has accepted of each backend, and its last catalog. A write names the version that it
-- replaces.
create table if not exists file (
  grp text not null,
  name text not null,
  version bigint not null default 1,
  value text not null,
  primary key (grp, name)
);

-- Where the next message of a run or a session to an agent goes.
create table if not exists conversation (
  grp text not null,
  id text not null,
  context text,
  task text,
  used timestamptz not null default now(),
  primary key (grp, id)
);
create index if not exists conversation_by_age on conversation (grp, used);

-- What waits for a person, so that any replica lists it and takes the decision. The first decision counts.
create table if not exists approval (
  grp text not null,
  id text not null,
  -- Whose call waits.
  holder uuid not null,
  value bytea not null,
  deadline timestamptz not null,
  -- When and how it ended, and whether a person has decided.
  ended bytea,
  ended_at timestamptz,
  by_person boolean not null default false,
  primary key (grp, id)
);

-- Which replica delivers a notice, and what was delivered. The id is the receiver's name and what the notice
-- is about; the message is the id that the receiver sees.
create table if not exists notice (
  grp text not null,
  id text not null,
  message text not null,
  holder uuid not null,
  until timestamptz not null,
  told boolean not null default false,
  primary key (grp, id)
);

-- What was cancelled at a replica that does not drive it, for the one that does.
create table if not exists cancellation (
  grp text not null,
  id text not null,
  value bytea not null,
  since timestamptz not null default now(),
  primary key (grp, id)
);
