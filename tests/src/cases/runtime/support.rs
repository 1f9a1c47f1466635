//! A service to record and to start, and what these cases ask of statistics and of published recordings.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use xebec_format::PAGE_SIZE;
use xebec_format::digest::Digest;
use xebec_format::runtime_image::{PageRun, Recording, SeenRun, open_segment};
use xebec_testkit::compression::Compression;
use xebec_testkit::image::{Image, ImageBuilder};
use xebec_testkit::registry::Options;
use xebec_testkit::tar::{Header, Kind, TarBuilder};

use crate::lab::{Ended, Lab, Names, expect_contents};
use crate::world::World;

pub(super) const PAGE: usize = PAGE_SIZE as usize;
const RECORDING_TYPE: &str = "application/vnd.xebec.runtime-image.recording.v1";
const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";
/// Where statistics say how often the upper layer was asked for.
const UPPER: &str = "upper_requests";
/// Reads that no recording foresaw, and the spans for them: a Go program's threads do not touch the very same pages of it each time.
pub(super) const STRAY: u64 = 8;
/// The files that the image's own command reads.
pub(super) const START: [&str; 3] = ["/start/a", "/start/b", "/start/zeros"];

/// A lab with an image of a service: `linger` in the lower layer, and in the upper one files that it reads, between others
/// that it does not. Nothing in the upper layer can be compressed, so that its spans hold parts of both.
pub(super) struct Service<'a> {
    pub(super) lab: Lab<'a>,
    pub(super) image: Image,
    /// Path in the image and contents, in the order of the layer.
    pub(super) files: Vec<(&'static str, Vec<u8>)>,
}

impl<'a> Service<'a> {
    pub(super) fn new(world: &'a World) -> Result<Self> {
        Self::with(world, Options::default())
    }

    /// With a registry of that kind.
    pub(super) fn with(world: &'a World, options: Options) -> Result<Self> {
        Self::of(world, options, [100_000, 1 << 20])
    }

    /// With so many bytes in the first two files of [`START`].
    pub(super) fn of(world: &'a World, options: Options, sizes: [usize; 2]) -> Result<Self> {
        let program = fs::read(World::go_tool("linger")?).context("read the program of the containers")?;
        let files = vec![
            ("rest/big", noise(41, 4 << 20)),
            ("start/a", noise(42, sizes[0])),
            ("start/b", noise(43, sizes[1])),
            ("start/zeros", vec![0; 1 << 20]),
            ("rest/more", noise(44, 4 << 20)),
        ];
        Ok(Self {
            lab: Lab::with(world, options)?,
            image: image(&program, &files)?.build(),
            files,
        })
    }

    /// The image's next version: one layer more, with one file.
    pub(super) fn next_version(&self, path: &str, contents: &[u8]) -> Result<Image> {
        let mut layer = TarBuilder::new();
        layer.file(path, contents);
        let program = fs::read(World::go_tool("linger")?)?;
        let image = image(&program, &self.files)?.layer(&layer.into_bytes(), Compression::Gzip(1))?;
        Ok(image.build())
    }

    /// The contents of a file of the upper layer.
    pub(super) fn file(&self, path: &str) -> Result<&[u8]> {
        let found = self.files.iter().find(|(name, _)| *name == path);
        found
            .map(|(_, contents)| contents.as_slice())
            .with_context(|| format!("no file {path}"))
    }

    /// Records a service in a root and gives what `record --json` said.
    pub(super) fn record(&self, root: &str, words: &[&str]) -> Result<Value> {
        let ended = self.lab.xebec(root, &[&["record", "--json"], words].concat())?;
        ended.expect(0, &[])?;
        told(&ended)
    }

    /// Runs a container and gives its statistics, and in them how often the upper layer was asked for.
    pub(super) fn start(&self, root: &str, words: &[&str]) -> Result<Value> {
        let file = self.lab.path(&format!("stats-{:x}", fastrand::u64(..)));
        let place = file.to_string_lossy().into_owned();
        self.lab.registry.clear_log();
        let ended = self
            .lab
            .xebec(root, &[&["run", "--rm", "--stats", &place], words].concat())?;
        ended.expect(0, &["ready"])?;
        let mut stats: Value =
            serde_json::from_slice(&fs::read(&file)?).context("statistics are not JSON")?;
        stats[UPPER] = self.layer_requests(1)?.into();
        Ok(stats)
    }

    /// Mounts the image and compares every file.
    pub(super) fn expect_truth(&self, root: &str, reference: &str) -> Result<()> {
        let mnt = self.lab.mount(root, reference, &[])?;
        self.expect_files(&mnt)?;
        self.lab.umount(root, &mnt)
    }

    pub(super) fn expect_files(&self, mnt: &Path) -> Result<()> {
        for (path, contents) in &self.files {
            expect_contents(&mnt.join(path), contents)?;
        }
        let program = fs::read(World::go_tool("linger")?)?;
        expect_contents(&mnt.join("bin/linger"), &program)
    }

    /// Nothing that is cached in a root is wrong.
    pub(super) fn expect_sound(&self, root: &str, reference: &str) -> Result<()> {
        let checked = self.lab.check(root, reference)?;
        ensure!(checked.wrong == 0 && checked.verified > 0, "{checked:?}");
        Ok(())
    }

    /// How often a layer was asked for since the registry's log was cleared.
    pub(super) fn layer_requests(&self, number: usize) -> Result<usize> {
        let layer = self.image.layers.get(number).context("no such layer")?;
        Ok(self.lab.registry.count(&layer.digest.to_string()))
    }

    /// The requests to the registry since its log was cleared, without those that ask whether it speaks the protocol.
    pub(super) fn asked(&self) -> Vec<String> {
        let log = self.lab.registry.log().into_iter();
        log.map(|request| request.head.path)
            .filter(|path| path != "/v2/")
            .collect()
    }

    /// A started `record` whose words can be asked for at its end.
    pub(super) fn spawn_record(&self, world: &World, root: &str, words: &[&str]) -> Result<Child> {
        // The root gets its settings before.
        self.lab.xebec(root, &["version"])?;
        let mut command: Command = world.xebec_at(root, &[&["record", "--json"], words].concat());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().context("cannot start record")
    }
}

/// The image of a service that reads [`START`].
pub(super) fn image(program: &[u8], files: &[(&str, Vec<u8>)]) -> Result<ImageBuilder> {
    let mut upper = TarBuilder::new();
    for (path, contents) in files {
        upper.file(path, contents);
    }
    let image = ImageBuilder::new()
        .layer(&lower_layer(program), Compression::Gzip(1))?
        .layer(&upper.into_bytes(), Compression::Gzip(1))?
        .config("Entrypoint", json!(["/bin/linger"]))
        // So that it touches nearly the same pages each time: a program that is preempted, on a busy machine, looks at
        // a hundred pages of its tables for where it is.
        .config(
            "Env",
            json!(["GOMAXPROCS=1", "GOGC=off", "GODEBUG=asyncpreemptoff=1"]),
        )
        .config("Cmd", json!([&["0s"][..], &START[..]].concat()));
    Ok(image)
}

/// The layer that only has the program.
pub(super) fn lower_layer(program: &[u8]) -> Vec<u8> {
    let mut lower = TarBuilder::new();
    lower.directory("bin");
    lower.file_with(&Header::new("bin/linger", Kind::File).mode(0o755), program);
    lower.into_bytes()
}

/// The object that `record --json` printed; the service itself may print something, too.
pub(super) fn told(ended: &Ended) -> Result<Value> {
    let begin = ended
        .out
        .find("{\n")
        .with_context(|| format!("no answer: {ended:?}"))?;
    let answer = ended.out.get(begin..).unwrap_or_default();
    serde_json::from_str(answer).with_context(|| format!("record's answer: {ended:?}"))
}

/// Bytes that nothing can compress, the same for the same seed.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    fastrand::Rng::with_seed(seed).fill(&mut bytes);
    bytes
}

/// A number in statistics.
pub(super) fn number(value: &Value, pointer: &str) -> Result<u64> {
    let number = value.pointer(pointer).and_then(Value::as_u64);
    number.with_context(|| format!("no number {pointer} in {value:#}"))
}

/// Asks that a start brought what it needed by its recording, nothing of the files in another way, and that nothing went
/// wrong.
pub(super) fn expect_recorded(stats: &Value) -> Result<()> {
    ensure!(problem(stats)?.is_none(), "{stats:#}");
    ensure!(number(stats, "/upper_requests")? == 0, "{stats:#}");
    // Early readers of what is on its way raise events, but fetch nothing.
    ensure!(number(stats, "/fills/spans")? <= STRAY, "{stats:#}");
    ensure!(number(stats, "/fills/failures")? == 0, "{stats:#}");
    Ok(())
}

/// Requests that reads may have made which no recording foresaw: a window and a span each.
pub(super) fn strays(stats: &Value) -> Result<u64> {
    Ok(2 * number(stats, "/fills/events")?)
}

/// Asks that a start was lazy, whatever recordings there are.
pub(super) fn expect_lazy(stats: &Value) -> Result<()> {
    let injected = stats.pointer("/runtime_image/injected").and_then(Value::as_u64);
    ensure!(injected.unwrap_or(0) == 0, "{stats:#}");
    ensure!(number(stats, "/upper_requests")? > 0, "{stats:#}");
    ensure!(number(stats, "/fills/spans")? > 0, "{stats:#}");
    ensure!(number(stats, "/fills/failures")? == 0, "{stats:#}");
    Ok(())
}

/// The fault of a runtime image, according to statistics; `None` if it has none.
pub(super) fn problem(stats: &Value) -> Result<Option<String>> {
    let loaded = stats
        .get("runtime_image")
        .with_context(|| format!("no runtime image: {stats:#}"))?;
    Ok(loaded.get("problem").and_then(Value::as_str).map(str::to_owned))
}

/// A published recording as the registry has it.
pub(super) struct Published {
    pub(super) manifest: Value,
    pub(super) recording: Recording,
    /// Every page that is in its zones.
    pub(super) pages: BTreeMap<(u16, u64), Vec<u8>>,
}

impl Published {
    /// The recording of which `record --json` told.
    pub(super) fn new(lab: &Lab<'_>, repository: &str, told: &Value) -> Result<Self> {
        let artifact = told
            .get("artifact")
            .and_then(Value::as_str)
            .context("not pushed")?;
        let manifest = lab
            .registry
            .manifest(repository, artifact)
            .context("the artifact is not there")?;
        let manifest: Value = serde_json::from_slice(&manifest)?;
        let media_type = manifest.pointer("/layers/0/mediaType").and_then(Value::as_str);
        ensure!(media_type == Some(RECORDING_TYPE), "{manifest:#}");
        let digest = manifest.pointer("/layers/0/digest").and_then(Value::as_str);
        let blob = |digest: &Digest| lab.registry.blob(repository, digest).context("no such blob");
        let recording = Recording::decode(&blob(&digest.context("no digest")?.parse()?)?)?;
        let mut pages = BTreeMap::new();
        for segment in &recording.segments {
            let zone = recording
                .zones
                .get(usize::from(segment.zone))
                .context("no zone")?;
            let zone = blob(&zone.digest)?;
            let stored = zone.get(segment.offset as usize..segment.end() as usize);
            let plain = open_segment(segment, stored.context("a short zone")?)?;
            let names = segment.runs.iter().flat_map(each_page);
            pages.extend(names.zip(plain.chunks(PAGE).map(<[u8]>::to_vec)));
        }
        Ok(Self {
            manifest,
            recording,
            pages,
        })
    }

    /// Attaches the same artifact to the image in another repository, with other bytes at some places of its list.
    pub(super) fn attach(
        &self,
        lab: &Lab<'_>,
        from: &str,
        names: &Names,
        changed: Vec<(usize, Vec<u8>)>,
    ) -> Result<()> {
        let mut manifest = self.manifest.clone();
        let listed = manifest.get_mut("layers").and_then(Value::as_array_mut);
        let listed = listed.context("no blobs")?;
        for descriptor in listed.iter() {
            let digest = descriptor.get("digest").and_then(Value::as_str);
            let digest: Digest = digest.context("no digest")?.parse()?;
            let bytes = lab.registry.blob(from, &digest).context("no such blob")?;
            lab.registry.put_blob(&names.repository, bytes);
        }
        for (place, bytes) in changed {
            let descriptor = listed.get_mut(place).and_then(Value::as_object_mut);
            let descriptor = descriptor.context("no descriptor")?;
            descriptor.remove("data");
            descriptor.insert("digest".to_owned(), Digest::of(&bytes).to_string().into());
            descriptor.insert("size".to_owned(), bytes.len().into());
            lab.registry.put_blob(&names.repository, bytes);
        }
        lab.registry.put_blob(&names.repository, &b"{}"[..]);
        let bytes = serde_json::to_vec(&manifest)?;
        let digest = Digest::of(&bytes).to_string();
        lab.registry
            .put_manifest(&names.repository, &digest, MANIFEST_TYPE, bytes);
        lab.registry.clear_log();
        Ok(())
    }

    /// The only zone's digest.
    pub(super) fn zone(&self) -> Result<Digest> {
        let zone = self.recording.zones.first().context("no zone")?;
        Ok(zone.digest)
    }

    /// The pages that the service touched: layer and page.
    pub(super) fn touched(&self) -> Vec<(u16, u64)> {
        let services = self.recording.services.iter();
        let runs = services.flat_map(|service| service.touched.iter().map(|seen| seen.run));
        let mut pages: Vec<(u16, u64)> = runs.flat_map(|run| each_page(&run)).collect();
        pages.sort_unstable();
        pages
    }

    /// How many of the touched pages a file has, too. Segments of earlier recordings may bring others along.
    pub(super) fn pages_of(&self, file: &[u8]) -> usize {
        self.touched_of(file).count()
    }

    /// The numbers of runs that touched these pages: each number that a page has.
    pub(super) fn seen_of(&self, file: &[u8]) -> BTreeSet<u8> {
        let pages: BTreeSet<(u16, u64)> = self.touched_of(file).collect();
        let services = self.recording.services.iter();
        let runs = services.flat_map(|service| &service.touched);
        let has = |seen: &&SeenRun| each_page(&seen.run).any(|page| pages.contains(&page));
        runs.filter(has).map(|seen| seen.seen).collect()
    }

    fn touched_of<'a>(&'a self, file: &'a [u8]) -> impl Iterator<Item = (u16, u64)> + 'a {
        let wanted: BTreeSet<&[u8]> = file.chunks_exact(PAGE).collect();
        let touched = self.touched().into_iter();
        touched.filter(move |page| {
            let held = self.pages.get(page);
            held.is_some_and(|page| wanted.contains(page.as_slice()))
        })
    }
}

pub(super) fn each_page(run: &PageRun) -> impl Iterator<Item = (u16, u64)> + use<> {
    let (layer, pages): (u16, Range<u64>) = (run.layer, run.first..run.end());
    pages.map(move |page| (layer, page))
}

/// Pushes the image with an index that is signed by that key.
pub(super) fn push_signed(service: &Service<'_>, key: &str) -> Result<Names> {
    let names = service.lab.push(&service.image, "app");
    service
        .lab
        .xebec("builder", &["index", "--push", "--sign", key, &names.tag])?
        .expect(0, &[])?;
    Ok(names)
}
