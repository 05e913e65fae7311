-- The dedicated layout: two entry tables for each stream, a ring, without unique index and without TOAST.

-- +goose Up
-- +goose ENVSUB ON

-- How many categories were deleted: of what names one that is gone it tells whether that may be so.
ALTER TABLE ${WATTLE_SCHEMA:-wattle}.store ADD COLUMN deleted_categories bigint NOT NULL DEFAULT 0;

-- Of a dedicated stream: the first seqno of the half that is written, times 4; plus 2 while the other half is not empty;
-- plus which half is written, 0 or 1. Of a shared stream 0. It stands in the registry row so that the statement that
-- locks the row learns where to write.
ALTER TABLE ${WATTLE_SCHEMA:-wattle}.streams ADD COLUMN ring bigint NOT NULL DEFAULT 0;

-- The dedicated streams, few among millions. An append does not change ring, so its update of the row stays off every index.
CREATE INDEX streams_dedicated ON ${WATTLE_SCHEMA:-wattle}.streams (ordinal) WHERE ring <> 0;

-- The parent of all halves, so that one statement appends to any of them; it is never read. Below it stands a parent for
-- each dedicated category, logs_<category>, so that a new stream concerns the sessions of its category only; and below
-- that two tables for each stream, the halves log_<ordinal>_0 and log_<ordinal>_1, with part = 2 × ordinal + 0 or 1. A row
-- is an entry or, with chunk > 0, the next piece of its body, which is metadata and then data. PLAIN and no TOAST table:
-- LIKE … INCLUDING STORAGE carries it over.
CREATE TABLE ${WATTLE_SCHEMA:-wattle}.logs (
  part         bigint NOT NULL,
  seqno        bigint NOT NULL,
  epoch        bigint,
  time         timestamptz,
  category     int    NOT NULL,
  chunk        int    NOT NULL,
  version      int,
  split        int, -- bytes of body that are metadata
  id           uuid,
  batch        uuid,
  type         text   COLLATE "C",
  content_type text   COLLATE "C",
  body         bytea  NOT NULL
) PARTITION BY LIST (category);

ALTER TABLE ${WATTLE_SCHEMA:-wattle}.logs
  ALTER COLUMN type SET STORAGE PLAIN, ALTER COLUMN content_type SET STORAGE PLAIN, ALTER COLUMN body SET STORAGE PLAIN;

-- +goose Down
-- +goose ENVSUB ON
-- This destroys every dedicated stream of the store: what is left in the registry is as if it had been dropped.
DELETE FROM ${WATTLE_SCHEMA:-wattle}.snapshots WHERE stream IN (SELECT ordinal FROM ${WATTLE_SCHEMA:-wattle}.streams WHERE ring <> 0);
DELETE FROM ${WATTLE_SCHEMA:-wattle}.holds WHERE stream IN (SELECT ordinal FROM ${WATTLE_SCHEMA:-wattle}.streams WHERE ring <> 0);
DELETE FROM ${WATTLE_SCHEMA:-wattle}.streams WHERE ring <> 0;
DELETE FROM ${WATTLE_SCHEMA:-wattle}.categories WHERE layout <> 0;
DROP TABLE ${WATTLE_SCHEMA:-wattle}.logs;
ALTER TABLE ${WATTLE_SCHEMA:-wattle}.streams DROP COLUMN ring;
ALTER TABLE ${WATTLE_SCHEMA:-wattle}.store DROP COLUMN deleted_categories;
