-- Times are milliseconds since 1970. docs/formats/store.md says what each table is for.

CREATE TABLE repositories (
    id BIGINT PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    created BIGINT NOT NULL
);

CREATE TABLE blobs (
    digest TEXT PRIMARY KEY,
    size BIGINT NOT NULL,
    object TEXT NOT NULL UNIQUE,
    state TEXT NOT NULL CHECK (state IN ('present', 'condemned')),
    changed BIGINT NOT NULL,
    damaged BIGINT NOT NULL DEFAULT 0,
    scrubbed BIGINT NOT NULL DEFAULT 0
) WITHOUT ROWID;

CREATE TABLE repository_blobs (
    repository BIGINT NOT NULL REFERENCES repositories (id),
    digest TEXT NOT NULL REFERENCES blobs (digest),
    added BIGINT NOT NULL,
    PRIMARY KEY (repository, digest)
) WITHOUT ROWID;
CREATE INDEX repository_blobs_by_digest ON repository_blobs (digest);

CREATE TABLE manifest_contents (
    digest TEXT PRIMARY KEY,
    content BLOB NOT NULL
);

CREATE TABLE manifests (
    repository BIGINT NOT NULL REFERENCES repositories (id),
    digest TEXT NOT NULL REFERENCES manifest_contents (digest),
    media_type TEXT NOT NULL,
    artifact_type TEXT,
    subject TEXT,
    annotations TEXT NOT NULL,
    size BIGINT NOT NULL,
    created BIGINT NOT NULL,
    pulled BIGINT NOT NULL,
    PRIMARY KEY (repository, digest)
) WITHOUT ROWID;
CREATE INDEX manifests_by_digest ON manifests (digest);
CREATE INDEX manifests_by_subject ON manifests (repository, subject, digest);

CREATE TABLE manifest_references (
    repository BIGINT NOT NULL,
    manifest TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('config', 'layer', 'manifest')),
    digest TEXT NOT NULL,
    PRIMARY KEY (repository, manifest, digest, kind),
    FOREIGN KEY (repository, manifest) REFERENCES manifests (repository, digest)
) WITHOUT ROWID;
CREATE INDEX manifest_references_by_digest ON manifest_references (repository, digest);

CREATE TABLE tags (
    repository BIGINT NOT NULL,
    name TEXT NOT NULL,
    digest TEXT NOT NULL,
    created BIGINT NOT NULL,
    updated BIGINT NOT NULL,
    pulled BIGINT NOT NULL,
    PRIMARY KEY (repository, name),
    FOREIGN KEY (repository, digest) REFERENCES manifests (repository, digest)
) WITHOUT ROWID;
CREATE INDEX tags_by_digest ON tags (repository, digest);

CREATE TABLE uploads (
    id TEXT PRIMARY KEY,
    repository BIGINT NOT NULL REFERENCES repositories (id),
    object TEXT NOT NULL UNIQUE,
    size BIGINT NOT NULL,
    progress BLOB,
    started BIGINT NOT NULL,
    touched BIGINT NOT NULL,
    holder TEXT
);

CREATE TABLE garbage (
    object TEXT PRIMARY KEY,
    size BIGINT NOT NULL,
    progress BLOB,
    since BIGINT NOT NULL
);
