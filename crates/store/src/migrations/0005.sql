-- Blobs that are kept as recipes over packs of chunks. docs/formats/store.md says what each table and column is for. All blobs that are
-- here already wait to be taken apart.

ALTER TABLE blobs ADD COLUMN dedup_state TEXT NOT NULL DEFAULT 'waiting';
ALTER TABLE blobs ADD COLUMN dedup_due BIGINT NOT NULL DEFAULT 0;
ALTER TABLE blobs ADD COLUMN dedup_tries BIGINT NOT NULL DEFAULT 0;
ALTER TABLE blobs ADD COLUMN dedup_problem TEXT NOT NULL DEFAULT '';
CREATE INDEX blobs_by_dedup ON blobs (dedup_state, dedup_due, changed, digest);

CREATE TABLE drafts (
    object TEXT PRIMARY KEY,
    size BIGINT NOT NULL,
    since BIGINT NOT NULL
) WITHOUT ROWID;
CREATE INDEX drafts_by_since ON drafts (since, object);

CREATE TABLE packs (
    id BIGINT PRIMARY KEY,
    object TEXT NOT NULL UNIQUE,
    size BIGINT NOT NULL,
    checksum TEXT NOT NULL,
    plain BIGINT NOT NULL,
    chunks BIGINT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('present', 'condemned')),
    created BIGINT NOT NULL,
    damaged BIGINT NOT NULL DEFAULT 0,
    scrubbed BIGINT NOT NULL DEFAULT 0,
    unchecked BIGINT NOT NULL DEFAULT 1
);
CREATE INDEX packs_unchecked ON packs (created, id) WHERE unchecked = 1;
CREATE INDEX packs_condemned ON packs (id) WHERE state = 'condemned';

CREATE TABLE chunks (
    digest BLOB PRIMARY KEY,
    pack BIGINT NOT NULL REFERENCES packs (id)
) WITHOUT ROWID;
CREATE INDEX chunks_by_pack ON chunks (pack);

CREATE TABLE recipes (
    digest TEXT PRIMARY KEY,
    object TEXT NOT NULL UNIQUE,
    size BIGINT NOT NULL,
    checksum TEXT NOT NULL,
    plain BIGINT NOT NULL,
    proven BIGINT NOT NULL,
    damaged BIGINT NOT NULL DEFAULT 0,
    scrubbed BIGINT NOT NULL DEFAULT 0
) WITHOUT ROWID;

CREATE TABLE recipe_packs (
    recipe TEXT NOT NULL REFERENCES recipes (digest),
    pack BIGINT NOT NULL REFERENCES packs (id),
    PRIMARY KEY (recipe, pack)
) WITHOUT ROWID;
CREATE INDEX recipe_packs_by_pack ON recipe_packs (pack, recipe);
