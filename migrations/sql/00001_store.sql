-- The whole shared layout of one store: registry, entries, snapshots, holds, leases, checkpoints.
--
-- Names are qualified with ${WATTLE_SCHEMA:-wattle}, never found by search_path. With the goose CLI set WATTLE_SCHEMA
-- to the schema as SQL spells it (quotes included where it needs them) and create the schema first.

-- +goose Up
-- +goose ENVSUB ON

-- Which store this is. One row, made with the schema; a restore makes a new incarnation.
CREATE TABLE ${WATTLE_SCHEMA:-wattle}.store (
  singleton   boolean     NOT NULL DEFAULT true PRIMARY KEY CHECK (singleton),
  incarnation uuid        NOT NULL DEFAULT gen_random_uuid(),
  created     timestamptz NOT NULL DEFAULT now()
);

INSERT INTO ${WATTLE_SCHEMA:-wattle}.store DEFAULT VALUES;

-- The one order over the store. CACHE 1 and INCREMENT 1 are part of the proof that a feed skips nothing; never OWNED BY
-- a column, because TRUNCATE … RESTART IDENTITY of its table would turn positions back.
CREATE SEQUENCE ${WATTLE_SCHEMA:-wattle}.position
  AS bigint INCREMENT BY 1 MINVALUE 1 START WITH 1 NO CYCLE CACHE 1;

-- Burn position 1: pg_sequence_last_value is NULL before the first draw, and a NULL key takes no lock. The sequence is
-- read as a table so that its name needs no quoting inside a string.
SELECT nextval(tableoid::regclass) FROM ${WATTLE_SCHEMA:-wattle}.position;

-- Categories: numbers are positive and not used again. Whoever inserts a category draws its number at random, so that
-- a server that has lost one (failover, restore) does not give its number to another; the identity is for hands.
CREATE TABLE ${WATTLE_SCHEMA:-wattle}.categories (
  id               int         GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name             text        COLLATE "C" NOT NULL UNIQUE,
  layout           smallint    NOT NULL DEFAULT 0, -- 0 shared, 1 dedicated
  demand_snapshots boolean     NOT NULL,
  trimmed_position bigint      NOT NULL DEFAULT 0,
  created          timestamptz NOT NULL DEFAULT now()
);

-- The registry: one row a stream, updated by every append. No index may hold a column that an append changes, and the
-- free fifth of every page keeps these updates on it (HOT), so that they write no index.
CREATE TABLE ${WATTLE_SCHEMA:-wattle}.streams (
  ordinal       bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  epoch         bigint      NOT NULL,
  last_seqno    bigint      NOT NULL,
  last_time     timestamptz NOT NULL,
  trimmed       bigint      NOT NULL DEFAULT 0, -- highest seqno removed
  category      int         NOT NULL,
  slot          smallint    NOT NULL,
  holder        uuid        NOT NULL,
  last_id       uuid        NOT NULL,
  key           text        COLLATE "C" NOT NULL,
  UNIQUE (category, key)
) WITH (fillfactor = 80);

-- Entries, a partition for each category: a category feed reads its own partition and deleting a category drops it.
-- Fixed widths come first, widest first: no padding. Unique keys stand on the partitions, because one on the parent
-- would have to carry the category.
CREATE TABLE ${WATTLE_SCHEMA:-wattle}.entries (
  position     bigint      NOT NULL,
  stream       bigint      NOT NULL, -- streams.ordinal
  seqno        bigint      NOT NULL,
  epoch        bigint      NOT NULL,
  time         timestamptz NOT NULL,
  category     int         NOT NULL,
  version      int         NOT NULL,
  id           uuid        NOT NULL,
  batch        uuid        NOT NULL,
  slot         smallint    NOT NULL,
  type         text        COLLATE "C" NOT NULL,
  content_type text        COLLATE "C" NOT NULL,
  metadata     text        COLLATE "C" NOT NULL,
  data         bytea       NOT NULL
) PARTITION BY LIST (category);

-- The latest snapshot of a stream.
CREATE TABLE ${WATTLE_SCHEMA:-wattle}.snapshots (
  stream       bigint      NOT NULL PRIMARY KEY,
  seqno        bigint      NOT NULL,
  time         timestamptz NOT NULL,
  id           uuid        NOT NULL, -- of the entry at seqno
  fingerprint  text        NOT NULL,
  content_type text        NOT NULL,
  checksum     bytea       NOT NULL,
  data         bytea       NOT NULL
);

-- lz4 where the server was built with it; else the server's default stays. A DO block takes no parameters, so the
-- schema travels in a setting that ends with the transaction.
SELECT set_config('wattle.migrating', c.relnamespace::regnamespace::text, true)
  FROM pg_class c JOIN ${WATTLE_SCHEMA:-wattle}.position p ON c.oid = p.tableoid;

-- +goose ENVSUB OFF
-- +goose StatementBegin
DO $do$
BEGIN
  EXECUTE format('ALTER TABLE %s.entries ALTER COLUMN data SET COMPRESSION lz4', current_setting('wattle.migrating'));
  EXECUTE format('ALTER TABLE %s.snapshots ALTER COLUMN data SET COMPRESSION lz4', current_setting('wattle.migrating'));
EXCEPTION WHEN feature_not_supported THEN
  RAISE NOTICE 'this server has no lz4: payloads use its default compression';
END
$do$;
-- +goose StatementEnd
-- +goose ENVSUB ON

-- The pattern of every partition: that of category 0, which never exists, so it stays empty. A new category's table is
-- made LIKE it; see the package comment for how later migrations reach all of them.
CREATE TABLE ${WATTLE_SCHEMA:-wattle}.entries_0 (LIKE ${WATTLE_SCHEMA:-wattle}.entries INCLUDING ALL);

ALTER TABLE ${WATTLE_SCHEMA:-wattle}.entries_0 ADD PRIMARY KEY (stream, seqno), ADD UNIQUE (position);

ALTER TABLE ${WATTLE_SCHEMA:-wattle}.entries ATTACH PARTITION ${WATTLE_SCHEMA:-wattle}.entries_0 FOR VALUES IN (0);

-- Floors under trimming.
CREATE TABLE ${WATTLE_SCHEMA:-wattle}.holds (
  name     text        COLLATE "C" NOT NULL,
  category int         NOT NULL,
  stream   bigint      NOT NULL DEFAULT 0, -- 0: the whole category
  seqno    bigint      NOT NULL,
  position bigint      NOT NULL,
  id       uuid        NOT NULL,
  updated  timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (name, category, stream)
) WITH (fillfactor = 50);

-- Liveness; until is on the database's clock, holder is NULL when nobody holds it. Rows stay: their epoch never falls.
CREATE TABLE ${WATTLE_SCHEMA:-wattle}.leases (
  name   text        COLLATE "C" NOT NULL PRIMARY KEY,
  epoch  bigint      NOT NULL,
  until  timestamptz NOT NULL,
  holder uuid
) WITH (fillfactor = 50);

-- How far a projector is, a row a lane.
CREATE TABLE ${WATTLE_SCHEMA:-wattle}.checkpoints (
  projector     text        COLLATE "C" NOT NULL,
  version       int         NOT NULL,
  lane          int         NOT NULL,
  epoch         bigint      NOT NULL,
  timeline      bigint      NOT NULL DEFAULT 0,
  position      bigint      NOT NULL,
  mark_position bigint      NOT NULL,
  seqno         bigint      NOT NULL DEFAULT 0, -- of a projector that follows one stream
  updated       timestamptz NOT NULL DEFAULT now(),
  holder        uuid        NOT NULL,
  incarnation   uuid        NOT NULL,
  mark_id       uuid        NOT NULL,
  recent        bytea       NOT NULL DEFAULT '', -- digest of a window below the mark, for a changed timeline
  PRIMARY KEY (projector, version, lane)
) WITH (fillfactor = 50);

-- +goose Down
-- +goose ENVSUB ON
-- This destroys every log of the store.
DROP TABLE
  ${WATTLE_SCHEMA:-wattle}.checkpoints,
  ${WATTLE_SCHEMA:-wattle}.leases,
  ${WATTLE_SCHEMA:-wattle}.holds,
  ${WATTLE_SCHEMA:-wattle}.snapshots,
  ${WATTLE_SCHEMA:-wattle}.entries,
  ${WATTLE_SCHEMA:-wattle}.streams,
  ${WATTLE_SCHEMA:-wattle}.categories,
  ${WATTLE_SCHEMA:-wattle}.store;

DROP SEQUENCE ${WATTLE_SCHEMA:-wattle}.position;
