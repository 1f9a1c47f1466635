"""Makes the dumps beside this file: a database of each version of the schema, as that version's program left it.

    make.py VERSION sqlite                 needs Python
    make.py VERSION postgres CONNECTION    needs psql and pg_dump, and an empty database: "host=/tmp/pg user=xebec dbname=one"

The migrations up to that version are applied, no others, and rows are written by the statements of that version's program
(crates/store/src/records as it was when the next migration came), in the order in which it would have written them. There is a row of
each kind in each table. A dump is made once, when its migration is new, and never again: what is tested is that what was written then
can be read.
"""

import hashlib
import json
import pathlib
import re
import sqlite3
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
MIGRATIONS = HERE.parents[2] / "src/migrations"
# In May 2026.
BEGIN = 1_780_000_000_000
NGINX, APP, EMPTY = 8_070_450_532_247_928_832, 1_234_567_890_123, 77
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"


def digest(content, algorithm="sha256"):
    return f"{algorithm}:{hashlib.new(algorithm, content).hexdigest()}"


def key(number):
    name = f"{number:02x}" * 16
    return f"{name[:2]}/{name}"


def descriptor(media_type, content):
    return {"mediaType": media_type, "digest": digest(content), "size": len(content)}


def text(value):
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


CONFIG = b'{"architecture":"amd64","os":"linux"}'
ONE, TWO, WIDE, LOOSE, CONDEMNED, DAMAGED = (
    f"the bytes of {name}".encode() for name in ("one", "two", "wide", "loose", "condemned", "damaged")
)
PACK, RECIPE, DRAFT = b"a pack with one chunk", b"a recipe for the blob that is condemned", b"a draft"
PACK_ID = 3_456_789_012_345
# The mark of a place, and a shard of a blob, which is damaged.
MARK, SHARD = key(17), b"a shard"
IMAGE = text({
    "schemaVersion": 2,
    "mediaType": MANIFEST,
    "config": descriptor("application/vnd.oci.image.config.v1+json", CONFIG),
    "layers": [descriptor(LAYER, ONE), descriptor(LAYER, TWO), {**descriptor(LAYER, WIDE), "digest": digest(WIDE, "sha512")}],
})
SECOND = text({
    "schemaVersion": 2,
    "mediaType": MANIFEST,
    "config": descriptor("application/vnd.oci.image.config.v1+json", CONFIG),
    "layers": [descriptor(LAYER, DAMAGED)],
})
LIST = text({"schemaVersion": 2, "mediaType": INDEX, "manifests": [descriptor(MANIFEST, IMAGE), descriptor(MANIFEST, SECOND)]})
SIGNATURE = text({"schemaVersion": 2, "mediaType": MANIFEST, "config": {}, "layers": [], "subject": descriptor(INDEX, LIST)})
ANNOTATIONS = {"org.example.note": "von Hand, “signed” — it's \\ \"this\"", "org.example.empty": ""}


class Program:
    """The statements of one version's program."""

    def __init__(self, version):
        self.version = version
        self.statements = []
        self.now = BEGIN

    def execute(self, sql, *values):
        self.statements.append((sql, values))

    def repository(self, number, name):
        self.execute("INSERT INTO repositories (id, name, created) VALUES ($1, $2, $3)", number, name, self.now)

    def blob(self, number, content, algorithm="sha256"):
        columns, values = ("", "") if self.version < 4 else (", unchecked", ", 0")
        self.execute(
            f"INSERT INTO blobs (digest, size, object, state, changed{columns}) VALUES ($1, $2, $3, 'present', $4{values})",
            digest(content, algorithm), len(content), key(number), self.now,
        )

    def link(self, repository, content, algorithm="sha256"):
        self.link_as(repository, digest(content, algorithm), 1)

    def drop_link(self, repository, content):
        self.execute("DELETE FROM repository_blobs WHERE repository = $1 AND digest = $2", repository, digest(content))
        unchecked = "" if self.version < 4 else ", unchecked = 1"
        unchecked += "" if self.version < 6 else ", unplaced = unplaced + 1, placing_due = 0"
        self.execute(f"UPDATE blobs SET changed = $2{unchecked} WHERE digest = $1 AND state = 'present'", digest(content), self.now)
        if self.version >= 4:
            self.execute("UPDATE repositories SET unchecked = 1 WHERE id = $1 AND unchecked = 0", repository)

    def link_as(self, repository, named, unchecked):
        if self.version < 4:
            self.execute(
                "INSERT INTO repository_blobs (repository, digest, added) VALUES ($1, $2, $3)"
                " ON CONFLICT (repository, digest) DO UPDATE SET added = excluded.added",
                repository, named, self.now,
            )
            return
        self.execute(
            "INSERT INTO repository_blobs (repository, digest, added, unchecked) VALUES ($1, $2, $3, $4)"
            " ON CONFLICT (repository, digest) DO UPDATE SET added = excluded.added,"
            " unchecked = CASE WHEN excluded.unchecked = 0 THEN 0 ELSE repository_blobs.unchecked END",
            repository, named, self.now, unchecked,
        )
        self.execute(
            "UPDATE blobs SET state = 'present', changed = $2, unchecked = 0"
            " WHERE digest = $1 AND (state <> 'present' OR unchecked = 1)",
            named, self.now,
        )

    def manifest(self, repository, content, media_type, references, is_pushed=True, artifact_type=None, subject=None, annotations=None):
        self.execute(
            "INSERT INTO manifest_contents (digest, content) VALUES ($1, $2) ON CONFLICT (digest) DO NOTHING",
            digest(content), content,
        )
        columns = ["repository", "digest", "media_type", "artifact_type", "subject", "annotations", "size", "created", "pulled"]
        values = [
            repository, digest(content), media_type, artifact_type, subject, text(annotations or {}).decode(), len(content), self.now, 0,
        ]
        if self.version >= 3:
            columns.append("pushed")
            values.append(self.now if is_pushed else 0)
        numbers = ", ".join(f"${number}" for number in range(1, len(columns) + 1))
        self.execute(f"INSERT INTO manifests ({', '.join(columns)}) VALUES ({numbers})", *values)
        for kind, named in references:
            self.execute(
                "INSERT INTO manifest_references (repository, manifest, kind, digest) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING",
                repository, digest(content), kind, named,
            )
            if kind != "manifest":
                self.link_as(repository, named, 0)

    def tag(self, repository, name, content):
        self.execute(
            "INSERT INTO tags (repository, name, digest, created, updated, pulled) VALUES ($1, $2, $3, $4, $4, 0)"
            " ON CONFLICT (repository, name) DO UPDATE SET digest = excluded.digest, updated = excluded.updated",
            repository, name, digest(content), self.now,
        )

    def pulled(self, repository, name, content):
        self.execute(
            "UPDATE manifests SET pulled = $3 WHERE repository = $1 AND digest = $2 AND pulled < $3", repository, digest(content), self.now
        )
        self.execute("UPDATE tags SET pulled = $3 WHERE repository = $1 AND name = $2 AND pulled < $3", repository, name, self.now)

    def upload(self, identifier, repository, number, size, progress):
        self.execute(
            "INSERT INTO uploads (id, repository, object, size, started, touched) VALUES ($1, $2, $3, 0, $4, $4)",
            identifier, repository, key(number), self.now,
        )
        self.now += 500
        self.execute(
            "UPDATE uploads SET size = $2, progress = $3, touched = $4 WHERE id = $1", identifier, size, progress, self.now
        )

    def garbage(self, number, size, progress):
        if self.version >= 6:
            self.execute(
                "INSERT INTO garbage (object, size, progress, since, place) VALUES ($1, $2, $3, $4, $5)",
                key(number), size, progress, self.now, "main",
            )
            return
        self.execute(
            "INSERT INTO garbage (object, size, progress, since) VALUES ($1, $2, $3, $4)", key(number), size, progress, self.now
        )

    def draft(self, number, content):
        self.execute("INSERT INTO drafts (object, size, since) VALUES ($1, $2, $3)", key(number), len(content), self.now)

    def drafted(self, number):
        self.execute("DELETE FROM drafts WHERE object = $1", key(number))

    def recipe(self, content, number, pack):
        """A blob is kept as a recipe over one pack. Its object was `number`; the pack's and the recipe's come after `pack`."""
        for of_draft, written in enumerate([PACK, RECIPE], pack):
            self.draft(of_draft, written)
        self.drafted(pack)
        self.execute(
            "INSERT INTO packs (id, object, size, checksum, plain, chunks, state, created, unchecked)"
            " VALUES ($1, $2, $3, $4, $5, $6, 'present', $7, 0)",
            PACK_ID, key(pack), len(PACK), digest(PACK), len(content), 1, self.now,
        )
        self.execute("INSERT INTO chunks (digest, pack) VALUES ($2, $1)", PACK_ID, hashlib.sha256(content).digest())
        self.drafted(pack + 1)
        columns, numbers, values = ("", "", []) if self.version < 6 else (", form", ", $7", ["chunks"])
        self.execute(
            f"INSERT INTO recipes (digest, object, size, checksum, plain, proven{columns}) VALUES ($1, $2, $3, $4, $5, $6{numbers})",
            digest(content), key(pack + 1), len(RECIPE), digest(RECIPE), len(content), self.now, *values,
        )
        self.execute("INSERT INTO recipe_packs (recipe, pack) VALUES ($1, $2) ON CONFLICT DO NOTHING", digest(content), PACK_ID)
        changed = "" if self.version < 6 else ", unplaced = unplaced + 1, placing_due = 0"
        self.execute(f"UPDATE blobs SET dedup_state = 'done', dedup_problem = ''{changed} WHERE digest = $1", digest(content))
        self.execute(
            f"UPDATE blobs SET object = $2, damaged = 0, dedup_state = 'done'{changed} WHERE digest = $1",
            digest(content), "none:" + digest(content),
        )
        self.garbage(number, len(content), None)

    def place(self, name, mark):
        self.execute("INSERT INTO places (name, mark, since) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING", name, mark, self.now)

    def replica(self, number, of, content, place, part, written):
        """A copy, or a shard, of the object `of` with `content` has the bytes `written`."""
        self.execute(
            "INSERT INTO drafts (object, size, since, place) VALUES ($1, $2, $3, $4)", key(number), len(written), self.now, place
        )
        self.drafted(number)
        self.execute(
            "INSERT INTO replicas (key, place, object, data, parity, shard, size, checksum, whole, made, scrubbed)"
            " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $10)",
            key(number), place, key(of), *part, len(written), digest(written), len(content), self.now,
        )
        for table, owner in [
            ("blobs", "object = $1"),
            ("packs", "object = $1"),
            ("blobs", "digest IN (SELECT digest FROM recipes WHERE object = $1)"),
        ]:
            self.execute(f"UPDATE {table} SET unplaced = unplaced + 1 WHERE {owner}", key(of))

    def indexed(self, repository, content, state, problem):
        self.execute(
            "UPDATE manifests SET indexing = $3, indexing_problem = $4 WHERE repository = $1 AND digest = $2",
            repository, digest(content), state, problem,
        )

    def layer(self, content, made, problem):
        self.execute(
            "INSERT INTO layer_indexes (layer, made, problem, changed) VALUES ($1, $2, $3, $4)"
            " ON CONFLICT (layer) DO UPDATE SET made = excluded.made, problem = excluded.problem, changed = excluded.changed",
            digest(content), made, problem, self.now,
        )


def write_rows(program):
    program.repository(NGINX, "library/nginx")
    for number, content in enumerate([CONFIG, ONE, TWO, DAMAGED], 1):
        program.blob(number, content)
        program.link(NGINX, content)
        program.now += 1000
    program.blob(5, WIDE, "sha512")
    program.link(NGINX, WIDE, "sha512")
    references = [("config", digest(CONFIG)), ("layer", digest(ONE)), ("layer", digest(TWO)), ("layer", digest(WIDE, "sha512"))]
    program.manifest(NGINX, IMAGE, MANIFEST, references)
    program.tag(NGINX, "1.29", IMAGE)
    program.manifest(NGINX, SECOND, MANIFEST, [("config", digest(CONFIG)), ("layer", digest(DAMAGED))], is_pushed=False)
    program.now += 1000
    program.manifest(NGINX, LIST, INDEX, [("manifest", digest(IMAGE)), ("manifest", digest(SECOND))])
    program.tag(NGINX, "latest", LIST)
    program.now += 1000
    program.manifest(
        NGINX, SIGNATURE, MANIFEST, [], artifact_type="application/vnd.example.signature", subject=digest(LIST), annotations=ANNOTATIONS
    )
    write_changes(program)


def write_changes(program):
    program.now += 60_000
    program.repository(APP, "team/app")
    for content in (CONFIG, DAMAGED):
        program.link(APP, content)
    program.manifest(APP, SECOND, MANIFEST, [("config", digest(CONFIG)), ("layer", digest(DAMAGED))])
    program.tag(APP, "v1", SECOND)
    program.now += 1000
    program.tag(APP, "v1", SECOND)
    program.pulled(NGINX, "1.29", IMAGE)
    program.blob(6, LOOSE)
    program.link(APP, LOOSE)
    program.blob(7, CONDEMNED)
    program.link(APP, CONDEMNED)
    if program.version >= 5:
        program.recipe(CONDEMNED, 7, 12)
    program.drop_link(APP, CONDEMNED)
    program.now += 1000
    condemned = "UPDATE blobs SET state = 'condemned', changed = $2 WHERE digest = $1 AND state = 'present'"
    program.execute(condemned, digest(CONDEMNED), program.now)
    scrubbed = "UPDATE blobs SET scrubbed = $3, damaged = $4 WHERE digest = $1 AND object = $2"
    program.execute(scrubbed, digest(ONE), key(2), program.now, 0)
    program.execute(scrubbed, digest(DAMAGED), key(4), program.now, program.now)
    program.repository(EMPTY, "empty/one")
    program.upload("11" * 16, EMPTY, 8, 8, None)
    progress = {"hash": "00" * 105, "multipart": "of a bucket", "parts": ['"etag"'], "size": 5 << 20, "tail": 7}
    program.upload("22" * 16, APP, 9, (5 << 20) + 7, text(progress))
    program.garbage(10, 5, None)
    program.garbage(11, (5 << 20) + 7, text(progress))
    if program.version >= 2:
        program.indexed(NGINX, IMAGE, "done", "")
        program.indexed(NGINX, SECOND, "failed", "layer 1 is no tar file")
        waits = "UPDATE manifests SET indexing_due = $3, indexing_tries = $4 WHERE repository = $1 AND digest = $2"
        program.execute(waits, APP, digest(SECOND), program.now + 600_000, 2)
        program.layer(ONE, '{"diff_id":"sha256:00"}', "")
        program.layer(DAMAGED, "", "it is no tar file")
    if program.version >= 5:
        program.draft(14, DRAFT)
        kept = "UPDATE blobs SET dedup_state = 'kept', dedup_problem = $3 WHERE digest = $1 AND object = $2 AND dedup_state = 'waiting'"
        program.execute(kept, digest(ONE), key(2), "its encoder is unknown")
    if program.version >= 6:
        write_copies(program)


def write_copies(program):
    program.place("one", MARK)
    program.replica(15, 2, ONE, "one", [0, 0, 0], ONE)
    program.replica(16, 3, TWO, "one", [2, 1, 2], SHARD)
    damaged = "UPDATE replicas SET scrubbed = $2, damaged = $3 WHERE key = $1"
    program.execute(damaged, key(16), program.now, program.now)
    program.execute("UPDATE blobs SET wanted = $2 WHERE digest = $1", digest(ONE), "intact@main intact@one")
    program.execute("UPDATE blobs SET unplaced = 0 WHERE digest = $1", digest(ONE))
    program.execute("UPDATE blobs SET popular_until = $2 WHERE digest = $1", digest(TWO), program.now + 600_000)
    program.execute(
        "INSERT INTO rules (name, value) VALUES ('copies', $1) ON CONFLICT (name) DO UPDATE SET value = excluded.value", "some rules"
    )


def literal(value, engine):
    if value is None:
        return "NULL"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, bytes):
        return f"X'{value.hex()}'" if engine == "sqlite" else f"'\\x{value.hex()}'::bytea"
    return "'" + value.replace("'", "''") + "'"


def in_dialect(sql, engine):
    """As crates/store/src/database/schema.rs did it when these were made."""
    if engine == "postgres":
        sql = sql.replace(" TEXT", ' TEXT COLLATE "C"').replace(" BLOB", " BYTEA").replace(" WITHOUT ROWID", "")
    return sql


def script(version, engine):
    lines = ["CREATE TABLE IF NOT EXISTS schema_versions (version BIGINT PRIMARY KEY);"]
    for number in range(1, version + 1):
        lines.append(in_dialect((MIGRATIONS / f"{number:04}.sql").read_text(), engine))
        lines.append(f"INSERT INTO schema_versions (version) VALUES ({number});")
    program = Program(version)
    write_rows(program)
    for sql, values in program.statements:
        lines.append(re.sub(r"\$(\d+)", lambda found, values=values: literal(values[int(found[1]) - 1], engine), sql) + ";")
    return "\n".join(lines)


def sqlite(version):
    connection = sqlite3.connect(":memory:")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.executescript(script(version, "sqlite"))
    return "\n".join(connection.iterdump()) + "\n"


def postgres(version, connection):
    quiet = ["--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", "--single-transaction"]
    subprocess.run(["psql", *quiet, connection], input=script(version, "postgres"), text=True, check=True)
    options = ["--inserts", "--no-owner", "--no-privileges", "--no-comments"]
    dump = subprocess.run(["pg_dump", *options, connection], stdout=subprocess.PIPE, text=True, check=True).stdout
    # Lines for psql alone, and what newer servers only know.
    lines = (line for line in dump.splitlines() if not line.startswith("\\"))
    return re.sub(r"\n{2,}", "\n", "\n".join(line for line in lines if not line.startswith("--"))) + "\n"


def main():
    version, engine = int(sys.argv[1]), sys.argv[2]
    dump = sqlite(version) if engine == "sqlite" else postgres(version, sys.argv[3])
    first = f"-- Made by make.py {version} {engine}; never to be changed.\n"
    (HERE / f"{version:04}.{engine}.sql").write_text(first + dump.lstrip("\n"))


if __name__ == "__main__":
    main()
