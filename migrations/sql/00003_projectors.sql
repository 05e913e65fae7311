-- What the processes of a projector share beside its checkpoints: versions, lanes, parked keys.

-- +goose Up
-- +goose ENVSUB ON

-- The versions of projectors. Each lane from 0 to lanes - 1 has its row in checkpoints. Behind a route a version has a row
-- for each backend, under projector/backend.
CREATE TABLE ${WATTLE_SCHEMA:-wattle}.projectors (
  projector  text        COLLATE "C" NOT NULL,
  version    int         NOT NULL,
  lanes      int         NOT NULL CHECK (lanes > 0),
  role       smallint    NOT NULL, -- 0 live, 1 shadow
  created    timestamptz NOT NULL DEFAULT now(),
  stream     text        COLLATE "C" NOT NULL DEFAULT '', -- followed instead of categories
  categories text[]      NOT NULL DEFAULT '{}',
  types      text[]      NOT NULL DEFAULT '{}', -- empty: all
  quiet      bigint[]    NOT NULL DEFAULT '{}', -- places through which another version has had all effects
  PRIMARY KEY (projector, version)
);

-- Readers and effects are of one version.
CREATE UNIQUE INDEX projectors_live ON ${WATTLE_SCHEMA:-wattle}.projectors (projector) WHERE role = 0;

-- Keys whose entries wait behind one that could not be handled.
CREATE TABLE ${WATTLE_SCHEMA:-wattle}.parked (
  projector     text        COLLATE "C" NOT NULL,
  version       int         NOT NULL,
  attempts      int         NOT NULL,
  seqno         bigint      NOT NULL,
  position      bigint      NOT NULL,
  through       bigint      NOT NULL,
  count         bigint      NOT NULL,
  since         timestamptz NOT NULL DEFAULT now(),
  id            uuid        NOT NULL,
  slot          smallint    NOT NULL,
  request       smallint    NOT NULL, -- 0 wait, 1 retry, 2 skip
  stream_key    text        COLLATE "C" NOT NULL,
  stream        text        COLLATE "C" NOT NULL,
  type          text        COLLATE "C" NOT NULL,
  queue_streams text[]      NOT NULL, -- where the waiting entries of each stream begin, in two columns
  queue_from    bigint[]    NOT NULL,
  trace         text        NOT NULL,
  cause         text        NOT NULL,
  stack         text        NOT NULL,
  note          text        NOT NULL,
  PRIMARY KEY (projector, version, stream_key)
);

-- Entries that were given up; rows are added only, and go with their version.
CREATE TABLE ${WATTLE_SCHEMA:-wattle}.skipped (
  number        bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  time          timestamptz NOT NULL DEFAULT now(),
  projector     text        COLLATE "C" NOT NULL,
  version       int         NOT NULL,
  attempts      int         NOT NULL,
  seqno         bigint      NOT NULL,
  position      bigint      NOT NULL,
  through       bigint      NOT NULL,
  count         bigint      NOT NULL,
  since         timestamptz NOT NULL DEFAULT now(),
  id            uuid        NOT NULL,
  slot          smallint    NOT NULL,
  request       smallint    NOT NULL,
  stream_key    text        COLLATE "C" NOT NULL,
  stream        text        COLLATE "C" NOT NULL,
  type          text        COLLATE "C" NOT NULL,
  queue_streams text[]      NOT NULL,
  queue_from    bigint[]    NOT NULL,
  trace         text        NOT NULL,
  cause         text        NOT NULL,
  stack         text        NOT NULL,
  note          text        NOT NULL
);

CREATE INDEX skipped_version ON ${WATTLE_SCHEMA:-wattle}.skipped (projector, version, number);

-- Register what is at work already: of each projector the highest version is the live one. What a version follows is not
-- known here; its next Run fills it in.
INSERT INTO ${WATTLE_SCHEMA:-wattle}.projectors (projector, version, lanes, role)
SELECT projector, version, max(lane) + 1,
  CASE WHEN version = max(version) OVER (PARTITION BY projector) THEN 0 ELSE 1 END
FROM ${WATTLE_SCHEMA:-wattle}.checkpoints GROUP BY projector, version;

-- +goose Down
-- +goose ENVSUB ON
-- This forgets which keys are parked: their entries are not handled any more. Checkpoints of all lanes stay.
DROP TABLE ${WATTLE_SCHEMA:-wattle}.skipped, ${WATTLE_SCHEMA:-wattle}.parked, ${WATTLE_SCHEMA:-wattle}.projectors;
