-- When a client pushed a manifest last; 0: it came from an upstream, or the registry made it. Of those that are here already nobody
-- knows, so they count as pushed.

ALTER TABLE manifests ADD COLUMN pushed BIGINT NOT NULL DEFAULT 0;
UPDATE manifests SET pushed = created;
