//! Writes the seeds that are generated: `cargo run --package xebec-fuzz --example seeds`, from the repository's root. The
//! same bytes each time; seeds under other names (those of mended defects) are left alone.

use std::io::{self, Write};
use std::path::Path;

use serde_json::{Value, json};
use xebec_artifact::artifact::{Artifact, BlobRef, LayerBlobs};
use xebec_format::digest::Digest;
use xebec_format::runtime_image::{
    BundledIndex, PageRun, RecordedLayer, Recording, SeenRun, Segment, SegmentDigest, Service, ServiceKey,
    Zone,
};
use xebec_fuzz::{plain_numbers_of_recording, plain_sections_of_index};
use xebec_index::indexer::{IndexOptions, index_layer};
use xebec_oci::Descriptor;
use xebec_recipe::{Blob, Cutter, Limits, Options, PackWriter, Piece, RecipeBuilder, Splitter};
use xebec_testkit::compression::Compression;
use xebec_testkit::tar::{Dialect, Header, Kind, SparseFormat, TarBuilder};
use xebec_trust::{BoundArtifact, Listing, Original, Policy, Record, RepositoryName, bind};

type Failure = Box<dyn std::error::Error>;

const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const LAYER: Digest = Digest::from_bytes([0x11; 32]);
const INDEX: Digest = Digest::from_bytes([0x22; 32]);

fn main() -> Result<(), Failure> {
    layers()?;
    recordings()?;
    tables_of_contents()?;
    documents()?;
    runner()?;
    trust()?;
    recipes()?;
    kernel()
}

fn put(target: &str, name: &str, bytes: &[u8]) -> io::Result<()> {
    let directory = Path::new("fuzz/seeds").join(target);
    std::fs::create_dir_all(&directory)?;
    std::fs::write(directory.join(name), bytes)
}

/// Recipes and packs of small archives, without the magic and the digests that the targets add.
fn recipes() -> Result<(), Failure> {
    for (name, archive) in archives() {
        put("recipe_split", name, &[&[0x05], &archive[..]].concat())?;
        let mut builder = RecipeBuilder::new(Limits::default());
        let mut writer = PackWriter::new(Options {
            level: 3,
            frame_size: 4096,
        });
        let mut is_taken = true;
        let mut sink = |piece: Piece<'_>| {
            let id = builder.add(piece);
            if let (Ok(Some(id)), Piece::Chunk { bytes, hint }) = (id, piece) {
                is_taken &= writer.add(id, bytes, hint).is_ok();
            }
            is_taken &= id.is_ok();
        };
        let mut splitter = Splitter::new(Cutter::Files);
        splitter.write(&archive, &mut sink);
        splitter.finish(&mut sink);
        let recipe = builder.finish(Blob::default(), Vec::new())?.to_bytes();
        let pack = writer.finish()?.bytes;
        let recipe = recipe.get(12..recipe.len() - 32).ok_or("a short recipe")?;
        let pack = pack.get(12..pack.len() - 44).ok_or("a short pack")?;
        if !is_taken {
            return Err("a piece was refused".into());
        }
        put("recipe_decode", name, recipe)?;
        put("pack_decode", name, pack)?;
    }
    Ok(())
}

fn put_texts(target: &str, texts: &[&str]) -> io::Result<()> {
    for (number, text) in texts.iter().enumerate() {
        put(target, &format!("{number:02}"), text.as_bytes())?;
    }
    Ok(())
}

/// Small archives, each with what one dialect of tar has.
fn archives() -> Vec<(&'static str, Vec<u8>)> {
    let runs: [(u64, &[u8]); 3] = [(0, &[1; 512]), (8192, &[2; 700]), (20480, &[3; 512])];
    let sparse = |format| {
        let mut tar = TarBuilder::new();
        tar.sparse(&Header::new("sparse", Kind::File), format, 40_000, &runs);
        tar.into_bytes()
    };
    vec![
        ("plain", plain_archive()),
        ("pax", long_names(Dialect::Pax)),
        ("gnu", long_names(Dialect::Gnu)),
        ("sparse-old", sparse(SparseFormat::OldGnu)),
        ("sparse-0.0", sparse(SparseFormat::Pax00)),
        ("sparse-0.1", sparse(SparseFormat::Pax01)),
        ("sparse-1.0", sparse(SparseFormat::Pax10)),
    ]
}

fn plain_archive() -> Vec<u8> {
    let mut tar = TarBuilder::new();
    tar.directory("./");
    tar.directory("a/").file("a/file", b"contents".repeat(60));
    tar.symlink("a/link", "/a/file").hardlink("a/hard", "a/file");
    tar.entry(&Header::new("null", Kind::CharDevice).device(1, 3));
    tar.entry(&Header::new("disk", Kind::BlockDevice).device(8, 0));
    tar.entry(&Header::new("pipe", Kind::Fifo));
    tar.file("empty", b"").whiteout("a/gone").opaque("b");
    tar.into_bytes()
}

fn long_names(dialect: Dialect) -> Vec<u8> {
    let long = "long/".repeat(30);
    let mut tar = TarBuilder::new();
    tar.dialect(dialect);
    tar.file(format!("{long}file"), b"x");
    tar.symlink("link", format!("/{long}file"));
    let header = Header::new("attributes", Kind::File).owner(3_000_000, 5);
    let header = match dialect {
        Dialect::Pax => header
            .modified(-5, 999_999_999)
            .xattr("user.a", "value")
            .xattr("security.capability", [1, 0, 0, 2, 0, 4, 0, 0]),
        Dialect::Gnu => header.modified(-5, 0),
    };
    tar.file_with(&header, b"y");
    tar.into_bytes()
}

fn layers() -> Result<(), Failure> {
    let encodings = [
        ("tar", Compression::Tar),
        ("gzip-stored", Compression::Gzip(0)),
        ("gzip", Compression::Gzip(6)),
        ("gzip-members", Compression::GzipMembers(700)),
        ("zstd", Compression::Zstd),
        ("zstd-frames", Compression::ZstdFrames(700)),
    ];
    for (name, archive) in archives() {
        put("tar", name, &[&[0x1e], &archive[..]].concat())?;
    }
    for (name, encoding) in encodings {
        let blob = encoding.encode(&plain_archive())?;
        put("index", name, &blob)?;
        let encoded = index_layer(&blob[..], &IndexOptions::default(), None)?
            .index
            .encode();
        put("layer_index", name, &encoded)?;
        let sections = plain_sections_of_index(&encoded).ok_or("an index without sections")?;
        put("layer_sections", name, &sections)?;
    }
    for (name, archive) in archives() {
        let encoded = index_layer(&archive[..], &IndexOptions::default(), None)?
            .index
            .encode();
        let sections = plain_sections_of_index(&encoded).ok_or("an index without sections")?;
        put("layer_sections", name, &sections)?;
    }
    streams()?;
    merges()?;
    Ok(())
}

/// A recording as it is, and with its numbers not yet compressed.
fn recordings() -> Result<(), Failure> {
    let run = |layer, first, pages| PageRun { layer, first, pages };
    let layer = |layer| RecordedLayer {
        layer,
        index: INDEX,
        data_size: 1000 << 12,
    };
    let segment = |zone, offset, runs: &[PageRun]| Segment {
        zone,
        offset,
        length: 1000,
        digest: SegmentDigest::Sha256(LAYER),
        runs: runs.to_vec(),
    };
    let service = |argv: &str, touched: &[PageRun]| Service {
        key: ServiceKey {
            argv: vec![argv.to_owned(), "-c".to_owned()],
            env: [("LANG".to_owned(), "C".to_owned())].into(),
        },
        probe: "port 80 answers".to_owned(),
        recorded: 1_700_000_000,
        runs: 3,
        recorder: "xebec 0.1.0".to_owned(),
        touched: touched.iter().map(|&run| SeenRun { run, seen: 2 }).collect(),
    };
    let zone = |digest| Zone { digest, size: 5000 };
    let mut recording = Recording {
        image: LAYER,
        layers: vec![layer(LAYER), layer(INDEX)],
        services: vec![
            service("nginx", &[run(0, 100, 8), run(1, 3, 1), run(0, 500, 2)]),
            service("sh", &[run(1, 2, 1), run(0, 104, 4)]),
        ],
        zeros: vec![run(1, 3, 1), run(0, 990, 10)],
        zones: vec![zone(LAYER), zone(INDEX)],
        indexes: vec![BundledIndex {
            layer: 1,
            zone: 1,
            offset: 2000,
            length: 500,
        }],
        segments: vec![
            segment(0, 0, &[run(0, 100, 8), run(0, 500, 2)]),
            segment(0, 3000, &[run(0, 300, 200)]),
            segment(1, 17, &[run(1, 2, 1)]),
        ],
    };
    recording.check()?;
    for (kinds, number) in [("", None), ("-kinds", Some(1))] {
        if let Some(segment) = number.and_then(|number: usize| recording.segments.get_mut(number)) {
            segment.digest = SegmentDigest::of(b"pages");
        }
        let encoded = recording.encode();
        let seed = [b"\0", &encoded[..]].concat();
        put("runtime_image", &format!("encoded{kinds}"), &seed)?;
        let numbers = plain_numbers_of_recording(&encoded).ok_or("a recording without numbers")?;
        let seed = [b"\x01", &numbers[..]].concat();
        put("runtime_image", &format!("numbers{kinds}"), &seed)?;
    }
    Ok(())
}

/// Deflate streams and spans of one.
fn streams() -> Result<(), Failure> {
    let text = b"A tale that was told and told and told again. ".repeat(12);
    for level in [0, 1, 9] {
        let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::new(level));
        encoder.write_all(&text)?;
        put("inflate", &format!("level-{level}"), &encoder.finish()?)?;
    }
    let plain = text.len() as u16;
    let spans = [
        (0, Compression::Tar),
        (1, Compression::Gzip(6)),
        (2, Compression::Zstd),
        (3, Compression::Gzip(6)),
        (4, Compression::Zstd),
    ];
    for (codec, encoding) in spans {
        // As `xebec_index::fuzzing::decode` reads them: codec and bit offset, the window's length, the ranges of the plain
        // stream and the data space, and where the one piece starts and how long it is.
        let mut seed = vec![codec, 0];
        for field in [0, 0, plain, 0, plain, 0, plain] {
            seed.extend(u16::to_le_bytes(field));
        }
        seed.extend(encoding.encode(&text)?);
        put("decode_span", &format!("codec-{codec}"), &seed)?;
    }
    Ok(())
}

/// Layers for `merge` are read from any bytes: these are from a linear congruential generator (Knuth's MMIX).
fn merges() -> io::Result<()> {
    let mut state = 1u64;
    for (number, length) in [60, 200, 800, 3000].into_iter().enumerate() {
        let bytes: Vec<u8> = (0..length)
            .map(|_| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                // Many small numbers: zero is the root, a directory, no attributes.
                let byte = (state >> 56) as u8;
                if state >> 55 & 1 == 0 { byte & 3 } else { byte }
            })
            .collect();
        put("merge", &format!("{number:02}"), &bytes)?;
    }
    Ok(())
}

fn table() -> Value {
    let chunk = Digest::of(b"chunk").to_string();
    json!({"version": 1, "entries": [
        {"type": "dir", "name": "a/", "mode": 493, "uid": 7, "gid": 8, "modtime": "2020-01-01T00:00:00.5+01:00"},
        {"type": "reg", "name": "a/whole", "size": 100, "offset": 50, "endOffset": 120, "chunkDigest": chunk,
         "digest": chunk, "xattrs": {"user.a": "YQ=="}},
        {"type": "reg", "name": "a/parts", "size": 9000, "offset": 200, "chunkSize": 5000, "chunkDigest": chunk},
        {"type": "chunk", "name": "a/parts", "offset": 900, "chunkOffset": 5000, "chunkSize": 4000,
         "chunkDigest": chunk},
        {"type": "reg", "name": "holes", "size": 10000, "offset": 1500, "chunkType": "zeros", "chunkSize": 4096},
        {"type": "chunk", "name": "holes", "offset": 1500, "endOffset": 1600, "chunkOffset": 4096,
         "chunkSize": 5904, "chunkDigest": chunk},
        {"type": "symlink", "name": "link", "linkName": "/a/whole"},
        {"type": "hardlink", "name": "hard", "linkName": "a/whole"},
        {"type": "char", "name": "null", "devMajor": 1, "devMinor": 3},
        {"type": "reg", "name": "a/.wh.gone"},
        {"type": "reg", "name": "b/.wh..wh..opq"},
        {"type": "fifo", "name": "pipe"}]})
}

fn tables_of_contents() -> Result<(), Failure> {
    let json = table().to_string();
    put("toc_json", "all-kinds", json.as_bytes())?;
    put("toc_json", "empty", br#"{"version":1,"entries":[]}"#)?;
    let mut tar = TarBuilder::new();
    tar.file("stargz.index.json", &json);
    let tar = tar.into_bytes();
    for level in [0, 6] {
        // Payload, table, and the two kinds of footer.
        let mut blob = vec![0; 2000];
        blob.extend(Compression::Gzip(level).encode(&tar)?);
        let tail = [1, 0, 0, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0];
        let offset = format!("{:016x}STARGZ", 2000);
        let header = |extra: u8| [0x1f, 0x8b, 8, 4, 0, 0, 0, 0, 0, 255, extra, 0];
        let current = [&blob, &header(26)[..], b"SG\x16\0", offset.as_bytes(), &tail].concat();
        let legacy = [&blob, &header(22)[..], offset.as_bytes(), &tail].concat();
        put("toc_estargz", &format!("level-{level}"), &current)?;
        put("toc_estargz", &format!("legacy-level-{level}"), &legacy)?;
    }
    put_texts(
        "toc_annotations",
        &[
            "1000000\nDIGEST\n",
            "1000000\n\nDIGEST\n900000:5000:20000:1\n",
            "1000000\nDIGEST\n\n\nDIGEST\n900000:5000:20000:1\n",
            "50\nDIGEST\n",
        ],
    )?;
    Ok(())
}

/// The files that a host keeps of networks, containers and their past.
fn runner() -> Result<(), Failure> {
    let definition = json!({"cniVersion": "1.0.0", "name": "web", "plugins": [
        {"type": "bridge", "bridge": "xebec0", "isGateway": true, "ipMasq": true,
            "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.4.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
        {"type": "firewall", "ingressPolicy": "same-bridge"},
        {"type": "portmap", "capabilities": {"portMappings": true}}]});
    put("network_definition", "bridge", definition.to_string().as_bytes())?;
    let record = json!({"id": "web-0123456789ab", "container": "web", "network": "web", "definition": definition,
        "namespace": 4_026_532_281_u64, "names": ["web", "alias"], "hosts": "/run/hosts",
        "ports": [], "addresses": {"addresses": ["10.4.0.2/24"], "gateway": "10.4.0.1", "mac": "1e:62:c6:39:90:d5"},
        "result": {"cniVersion": "1.0.0", "ips": [{"interface": 1, "address": "10.4.0.2/24"}]}});
    put("network_record", "attached", record.to_string().as_bytes())?;
    put_texts(
        "network_option",
        &[
            "127.0.0.1:8080-8083:80-83/udp",
            "10.4.0.0/24",
            "db=[2001:db8::1]",
            "host:host-gateway",
        ],
    )?;
    put_texts(
        "container_log",
        &[
            "2016-10-06T00:17:09.669794202Z stdout F one\n2016-10-06T00:17:10Z stderr P two \n2016-10-06T00:17:10.5Z stderr F three\n",
        ],
    )?;
    put_texts(
        "history",
        &[
            r#"{"kind":"wait","began_ms":1,"waited_ms":2.5,"state":"served","pid":7,"comm":"nginx","container":"web","layer":null,"file":"/etc/nginx.conf","offset":0,"count":4096,"spans":1,"joined":0,"retries":0,"waited_for_ms":{"transfer":2.5},"phase":"transfer","sources":["cache"],"problem":null}"#,
        ],
    )?;
    confinement()?;
    containers()?;
    put_texts(
        "network_result",
        &[
            r#"{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","mac":"1e:62:c6:39:90:d5","sandbox":"/run/netns/a"}],"ips":[{"interface":1,"address":"10.4.0.2/24","gateway":"10.4.0.1"}]}"#,
            r#"{"code":999,"msg":"failed to open netns","details":"more"}"#,
            "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\nnameserver 10.6.0.2\neth0\t0001A8C0\t0101A8C0\t0001\t0\t0\t0\t00FFFFFF\n",
        ],
    )?;
    for (name, archive) in archives() {
        put("copy_tar", name, &archive)?;
    }
    let mut tar = TarBuilder::new();
    tar.file("a/out", b"through a link");
    put("copy_tar", "through-a-link", &tar.into_bytes())?;
    Ok(())
}

/// The options that confine a container, and files of variables.
fn confinement() -> io::Result<()> {
    put_texts(
        "container_option",
        &[
            "1.5\n0-3,8\n100\non-failure:3\nnet.core.somaxconn=1024\nlabel=type:svirt_t\n/run:size=64m,mode=1777,uid=5,exec\n",
            "NET_ADMIN\n/dev/fuse:/dev/x:rwm\n-1\n64m\nnofile=1024:-1\n/run:size=10%,nr_inodes=5k\nunless-stopped\n",
            "\u{feff}A=1\n# no\n\n  B=x \nC=\"quoted\"\nOWN\nD=a=b\r\n",
        ],
    )?;
    // As the fuzzer divides bytes into two files: both, and the length of the first at the end.
    let (users, groups) = (
        "root:x:0:0:root:/root:/bin/sh\nwww:x:33:33::/var/www:/bin/sh\n",
        "data:x:50:www,root\nwww:x:33:\n",
    );
    let mut files = [users, groups].concat().into_bytes();
    files.push(users.len() as u8);
    put("image_users", "two-lists", &files)
}

/// The record of a container, and the messages between a command and the daemon.
fn containers() -> io::Result<()> {
    let saved = json!({"version": 1, "id": "0123456789ab", "image": "web:1", "manifest": LAYER, "command": ["nginx"],
        "created_ms": 1, "started_ms": 2, "finished_ms": null, "status": "running", "exit_code": null, "reason": null,
        "oom_killed": false, "restart": "on-failure:3", "restarts": 1, "pause_ms": 100,
        "supervisor": {"pid": 7, "started": 9, "boot": "a"}, "labels": {"a": "b"}, "detached": true, "stop_signal": 3,
        "stop_timeout_ms": 10_000, "caller": {"arguments": ["run", "web:1"]}});
    put("container_record", "saved", saved.to_string().as_bytes())?;
    let record = json!({"id": "web", "image": "web:1", "pid": 7, "pid_started": 9, "has_begun": true, "supervisor": 8,
        "supervisor_started": 9, "namespace": 4_026_531_836_u64, "boot": "a", "control_group": "/xebec-web-0123456789ab",
        "runtime": "/usr/bin/runc", "view": "/run/view", "state": "/var/lib/xebec/containers/web", "rm": false,
        "is_kept": false, "created": 1, "command": ["nginx"]});
    put("container_record", "record", record.to_string().as_bytes())?;
    put_texts(
        "container_record",
        &[
            r#"[{"name":"data","anonymous":true,"target":"/srv"}]"#,
            r#"{"created":1,"anonymous":false,"labels":{"a":"b"}}"#,
        ],
    )?;
    put_texts(
        "request",
        &[
            r#"{"op":"explain","name":"web"}"#,
            r#"{"op":"collect","target":5,"dry_run":true}"#,
            r#"{"op":"start_over","holder":{"kind":"process","name":"web","pid":7,"start_time":9},"container":"web","ready_ms":5}"#,
            r#"{"reply":"progress","what":"pull","done":1,"total":2,"unit":"bytes"}"#,
            r#"{"reply":"notice","text":"read whole"}"#,
        ],
    )
}

fn documents() -> Result<(), Failure> {
    put_texts(
        "reference",
        &[
            "nginx",
            "docker.io/library/nginx:1.25",
            "localhost:5000/a/b_c--d:tag@sha256:1111111111111111111111111111111111111111111111111111111111111111",
            "[::1]:5000/name",
        ],
    )?;
    let descriptor = json!({"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "digest": LAYER, "size": 3,
        "annotations": {"a": "b"}, "urls": ["https://example.com/"], "data": "YWJj"});
    let config = json!({"mediaType": "application/vnd.oci.image.config.v1+json", "digest": INDEX, "size": 2});
    let image = json!({"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": config, "layers": [descriptor],
        "subject": config, "annotations": null});
    let index = json!({"schemaVersion": 2, "manifests": [{"mediaType": OCI_MANIFEST, "digest": LAYER, "size": 5,
        "platform": {"os": "linux", "architecture": "arm", "variant": "v7", "os.version": "1", "features": []}}]});
    put("manifest", "image", format!("\0{image}").as_bytes())?;
    put("manifest", "index", format!("\0{index}").as_bytes())?;
    put_texts(
        "image_config",
        &[
            r#"{"architecture":"amd64","os":"linux","variant":"","config":{"User":"www:www","Env":["A=b"],"Entrypoint":["/e"],"Cmd":null,"WorkingDir":"/","StopSignal":"SIGQUIT","ExposedPorts":{"80/tcp":{}},"Labels":{"a":"b"}},"rootfs":{"type":"layers","diff_ids":["sha256:1111111111111111111111111111111111111111111111111111111111111111"]},"history":[]}"#,
            r#"{"config":null,"rootfs":null}"#,
        ],
    )?;
    put_texts(
        "challenge",
        &[
            "Bearer realm=\"https://auth.example.com/token\",service=\"registry\",scope=\"repository:a/b:pull\"",
            "Negotiate, Basic realm=\"a \\\"quoted\\\" name\"\nbearer realm=x , service = y",
        ],
    )?;
    put_texts(
        "registry_answer",
        &[
            r#"{"name":"team/app","tags":["1.27","latest","sha256-00.sig"]}"#,
            r#"{"errors":[{"code":"NAME_UNKNOWN","message":"repository name not known","detail":null}]}"#,
            r#"{"token":"abc.def-0","access_token":"x","expires_in":300,"issued_at":"2026-01-31T23:59:59Z"}"#,
            "bytes 0-499/1000\n</v2/x/tags/list?n=1>; rel=\"next\"\nhttps://cdn.example/x?X-Amz-Date=20231114T221320Z&X-Amz-Expires=600\nhttps://cdn.example/x?se=2023-11-14T22%3A14%3A20Z&sig=x\n",
        ],
    )?;
    put_texts(
        "login_file",
        &[
            r#"{"auths":{"https://index.docker.io/v1/":{"auth":"aHViOnB3OjE="},"registry.example.com:5000/team":{"username":"u","password":"p"},"acr.example":{"auth":"MDA6","identitytoken":"refresh"},"null.example":null},"credHelpers":{"gcr.io":"gcloud"},"credsStore":""}"#,
            r#"{"ServerURL":"https://a","Username":"u","Secret":"s"}"#,
            r#"{"kind":"CredentialProviderResponse","auth":{"*.example.com/team":{"username":"u","password":"p"}}}"#,
            "kind: CredentialProviderConfig\nproviders:\n- name: ecr\n  matchImages: [\"*.example.com\"]\n  apiVersion: v1\n  args: [get]\n  env: [{name: A, value: b}]\n",
        ],
    )?;
    put(
        "settings",
        "registries",
        b"plain_http = [\"registry.lan:5000\"]\n[budget]\nattempts = 3\nbase_delay = \"50ms\"\n\
          [[mirrors.\"docker.io\"]]\nurl = \"https://mirror.lan/hub\"\nresolve_tags = true\n",
    )?;
    let blob = |text: &str| BlobRef {
        digest: Digest::of(text.as_bytes()),
        size: text.len() as u64,
    };
    let blobs = LayerBlobs {
        index: blob("index"),
        windows: Some(blob("windows")),
        frame: Some(blob("frame")),
        contents: Some(blob("contents")),
    };
    let artifact = Artifact {
        layers: [(LAYER, blobs)].into(),
    };
    let manifest = artifact.encode(Descriptor::of(OCI_MANIFEST, b"image"), &[LAYER]);
    put("artifact", "one-layer", &serde_json::to_vec(&manifest)?)?;
    Ok(())
}

fn trust() -> Result<(), Failure> {
    put("trust_file", "template", Policy::template().as_bytes())?;
    put(
        "trust_file",
        "all",
        b"registry-root = \"never\"\n[[key]]\nname = \"k\"\nfile = \"k.pub\"\nrepositories = [\"a/**\"]\n\
          identity = \"any\"\n[[registry]]\nprefix = \"docker.io\"\nregistry-root = \"tag\"\n",
    )?;
    let repository = RepositoryName::from_docker_reference("registry.example.com/team/app")?;
    let mut record = Record::new(LAYER, INDEX);
    record.set_proven();
    record.add_listing(Listing::new(&repository));
    put("record", "proven-and-listed", &timeless(&record)?)?;
    record.set_disproved("wrong in span 3");
    put("record", "disproved", &timeless(&record)?)?;
    let index = json!({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [{"mediaType": OCI_MANIFEST, "digest": LAYER, "size": 5,
                       "platform": {"os": "linux", "architecture": "amd64"}}], "annotations": {"a": "b"}});
    let index = index.to_string().into_bytes();
    let artifact = BoundArtifact {
        manifest: LAYER,
        artifact: INDEX,
        artifact_size: 7,
    };
    put("bound_artifact", "unbound", &index)?;
    put(
        "bound_artifact",
        "bound",
        &bind(&Original::ImageIndex(&index), &[artifact])?,
    )?;
    for (target, name, file) in [
        ("public_key", "cosign", "cosign.pub"),
        ("payload", "cosign", "payload.json"),
        ("signature_manifest", "cosign", "signature-manifest.json"),
    ] {
        put(
            target,
            name,
            &std::fs::read(Path::new("crates/trust/tests/trust/data").join(file))?,
        )?;
    }
    put_texts(
        "repository_pattern",
        &[
            "registry.example.com:5000/team/app:tag\nregistry.example.com:5000/**\n*/team/a*p\n**/x/**/y",
            "nginx\ndocker.io/library/*\nindex.docker.io/library/nginx",
        ],
    )?;
    put_texts(
        "snapshot_filter",
        &[
            "kind==committed,labels.\"containerd.io/snapshot.ref\"==sha256:ab,parent==\"\"",
            "name~=/^k[0-9]{1,2}$/,labels.n!=\"\\x41\\102\\u00e9\\U0001f600\"",
        ],
    )?;
    Ok(())
}

/// A record as bytes, with all its times the same.
fn timeless(record: &Record) -> Result<Vec<u8>, Failure> {
    fn walk(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                for (key, value) in fields {
                    if key == "at" {
                        *value = json!(1_700_000_000);
                    }
                    walk(value);
                }
            }
            Value::Array(values) => values.iter_mut().for_each(walk),
            _ => {}
        }
    }
    let mut value = serde_json::to_value(record)?;
    walk(&mut value);
    Ok(serde_json::to_vec(&value)?)
}

fn kernel() -> Result<(), Failure> {
    let mut events = Vec::new();
    for number in [7i32, -1] {
        // struct fanotify_event_metadata, a record of a kind that is passed over, and a range.
        events.extend([56, 0, 0, 0, 3, 0, 24, 0]);
        events.extend(0x0010_0000u64.to_le_bytes());
        events.extend(number.to_le_bytes());
        events.extend(99i32.to_le_bytes());
        events.extend([4, 0, 8, 0, 1, 2, 3, 4]);
        events.extend([6, 0, 24, 0, 0, 0, 0, 0]);
        events.extend(4096u64.to_le_bytes());
        events.extend(8192u64.to_le_bytes());
    }
    put("fanotify_events", "two", &events)?;
    put(
        "mountinfo",
        "two",
        b"36 35 98:0 /mnt1 /mnt\\0402 rw,noatime master:1 shared:2 - ext3 /dev/root rw,errors=continue\n\
          37 36 0:5 / /proc rw - proc proc rw\n",
    )?;
    put_texts(
        "probe",
        &[
            "port:80",
            "http://[::1]:8080/health?a#b",
            "log:ready (to|for) accept.*$",
            "file:/run/app.sock",
            "exec:[\"pg_isready\",\"-q\"]",
            "exec:test -e /x",
            "exit",
            "SIGRTMIN+3",
            "/a:/b:ro",
        ],
    )?;
    Ok(())
}
