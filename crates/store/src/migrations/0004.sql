-- What a collection has to look at, so that it reads no more than has changed. 1: nobody has seen yet that this is needed, or what
-- needed it has gone. Of what is here already nobody knows, so the first collection looks at all of it.

ALTER TABLE repositories ADD COLUMN unchecked BIGINT NOT NULL DEFAULT 1;
ALTER TABLE blobs ADD COLUMN unchecked BIGINT NOT NULL DEFAULT 1;
ALTER TABLE repository_blobs ADD COLUMN unchecked BIGINT NOT NULL DEFAULT 1;
CREATE INDEX repositories_unchecked ON repositories (created, id) WHERE unchecked = 1;
CREATE INDEX blobs_unchecked ON blobs (state, changed, digest) WHERE unchecked = 1;
CREATE INDEX repository_blobs_unchecked ON repository_blobs (added, repository, digest) WHERE unchecked = 1;
CREATE INDEX uploads_by_touched ON uploads (touched, id);
CREATE INDEX uploads_by_repository ON uploads (repository);
