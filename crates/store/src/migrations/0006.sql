-- Objects on several places. docs/formats/store.md says what each table and column is for. Everything that is here is looked at once.

CREATE TABLE places (
    name TEXT PRIMARY KEY,
    mark TEXT NOT NULL,
    since BIGINT NOT NULL
) WITHOUT ROWID;

CREATE TABLE replicas (
    key TEXT PRIMARY KEY,
    place TEXT NOT NULL,
    object TEXT NOT NULL,
    data BIGINT NOT NULL,
    parity BIGINT NOT NULL,
    shard BIGINT NOT NULL,
    size BIGINT NOT NULL,
    checksum TEXT NOT NULL,
    whole BIGINT NOT NULL,
    made BIGINT NOT NULL,
    damaged BIGINT NOT NULL DEFAULT 0,
    scrubbed BIGINT NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE UNIQUE INDEX replicas_by_object ON replicas (object, place, data, parity, shard);
CREATE INDEX replicas_by_place ON replicas (place, key);

CREATE TABLE rules (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;

ALTER TABLE drafts ADD COLUMN place TEXT NOT NULL DEFAULT 'main';
ALTER TABLE drafts ADD COLUMN progress BLOB;
ALTER TABLE garbage ADD COLUMN place TEXT NOT NULL DEFAULT 'main';

ALTER TABLE blobs ADD COLUMN wanted TEXT NOT NULL DEFAULT '';
ALTER TABLE blobs ADD COLUMN popular_until BIGINT NOT NULL DEFAULT 0;
ALTER TABLE blobs ADD COLUMN unplaced BIGINT NOT NULL DEFAULT 1;
ALTER TABLE blobs ADD COLUMN placing_due BIGINT NOT NULL DEFAULT 0;
CREATE INDEX blobs_unplaced ON blobs (placing_due, digest) WHERE unplaced > 0;
CREATE INDEX blobs_popular ON blobs (popular_until) WHERE popular_until > 0;

ALTER TABLE packs ADD COLUMN unplaced BIGINT NOT NULL DEFAULT 1;
ALTER TABLE packs ADD COLUMN placing_due BIGINT NOT NULL DEFAULT 0;
CREATE INDEX packs_unplaced ON packs (placing_due, id) WHERE unplaced > 0;

ALTER TABLE repository_blobs ADD COLUMN unplaced BIGINT NOT NULL DEFAULT 1;
CREATE INDEX repository_blobs_unplaced ON repository_blobs (repository, digest) WHERE unplaced > 0;

ALTER TABLE recipes ADD COLUMN form TEXT NOT NULL DEFAULT '';
