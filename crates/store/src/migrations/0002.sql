-- Which manifests' layers still have to be indexed, and what came of each layer. docs/formats/store.md says what each column is for.

ALTER TABLE manifests ADD COLUMN indexing TEXT NOT NULL DEFAULT 'waiting';
ALTER TABLE manifests ADD COLUMN indexing_due BIGINT NOT NULL DEFAULT 0;
ALTER TABLE manifests ADD COLUMN indexing_tries BIGINT NOT NULL DEFAULT 0;
ALTER TABLE manifests ADD COLUMN indexing_problem TEXT NOT NULL DEFAULT '';
CREATE INDEX manifests_by_indexing ON manifests (indexing, indexing_due, created);

CREATE TABLE layer_indexes (
    layer TEXT PRIMARY KEY,
    made TEXT NOT NULL,
    problem TEXT NOT NULL,
    changed BIGINT NOT NULL
) WITHOUT ROWID;
