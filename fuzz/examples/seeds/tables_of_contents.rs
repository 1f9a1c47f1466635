//! Tables of contents of layers in the formats of others.

use serde_json::{Value, json};

use crate::output::{Failure, put, put_texts};
use xebec_format::digest::Digest;
use xebec_testkit::compression::Compression;
use xebec_testkit::tar::TarBuilder;

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

pub(crate) fn tables_of_contents() -> Result<(), Failure> {
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
