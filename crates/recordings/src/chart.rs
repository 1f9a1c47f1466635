//! One recorded service with the names of the files that its pages are in: for the picture that
//! `xebec inspect --runtime-image --svg` draws.

use xebec_cache::store::LayerKey;
use xebec_format::PAGE_SIZE;
use xebec_format::digest::Digest;
use xebec_format::layer::{EntryKind, LayerIndex};
use xebec_format::runtime_image::{PageRun, RecordedLayer, Service};
use xebec_images::images::Report;
use xebec_images::prepared_layer::PreparedLayer;
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::wire::ImageRequest;
use xebec_trust::Root;

use crate::recording_store::KeptRecording;
use crate::recordings::Recordings;
use crate::summary::{RecordedService, recorded};

/// A recorded service, its files and its pages.
#[derive(Clone, Debug)]
pub struct Chart {
    /// The image.
    pub reference: String,
    /// Size of its layers, compressed, in bytes.
    pub image_bytes: u64,
    /// The service.
    pub service: RecordedService,
    /// The layers that pages are of, lowest first.
    pub layers: Vec<ChartLayer>,
    /// The files that pages are of, by layer and place in it.
    pub files: Vec<ChartFile>,
    /// The pages, in the order of first access.
    pub marks: Vec<Mark>,
}

/// A layer of a [`Chart`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChartLayer {
    /// The layer blob.
    pub layer: Digest,
    /// Its place in the image, counted from 1.
    pub number: usize,
    /// How many files of it have bytes; none if its index is not known here.
    pub files: Option<usize>,
}

/// A file of a [`Chart`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChartFile {
    /// The place of its layer in [`Chart::layers`].
    pub layer: usize,
    /// Its path in the image; none if the layer's index is not known here: it stands for all of the layer then.
    pub path: Option<String>,
    /// How many pages it has.
    pub pages: u64,
}

/// Neighbouring pages of a file that were first read one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The place of the file in [`Chart::files`].
    pub file: usize,
    /// The first page, counted from the beginning of the file.
    pub first: u64,
    /// How many pages.
    pub pages: u64,
    /// How many pages of the service were read before.
    pub at: u64,
    /// Whether each run of the service read them.
    pub steady: bool,
}

impl Recordings {
    /// A recorded service of an image as a chart: the newest that may be used, or the one that `selected` names. `selected` is its
    /// command line (or a part of it), or the digest of its recording (or the beginning of it).
    ///
    /// # Errors
    /// When there is none, when several fit, and as looking for recordings and indexes.
    pub async fn chart(
        &self,
        request: &ImageRequest,
        selected: Option<&str>,
        report: &Report,
    ) -> Result<Chart, Failure> {
        let found = self.images.resolve(request, report).await?;
        let all = self.recordings_of(request, &found).await?;
        let named =
            |failure: Failure| Failure::new(failure.kind, format_args!("{}: {failure}", found.reference));
        let (kept, root, service) = choose(&all, selected).map_err(named)?;
        // Pages of unknown files are drawn as well, without names.
        let indexes = self
            .images
            .find_indexes(request, &found)
            .await
            .unwrap_or_default();
        let indexes: Vec<PreparedLayer> = indexes.into_iter().flatten().collect();
        let number_of = |layer: Digest| found.layers.iter().position(|known| known.digest == layer);
        let recorded_layers = kept.recording.layers.iter();
        let tables = recorded_layers.map(|layer| LayerTable {
            layer: layer.layer,
            number: number_of(layer.layer).map_or(0, |place| place + 1),
            pages: layer.data_size / PAGE_SIZE,
            table: self.table_of(layer, &indexes),
        });
        let tables: Vec<LayerTable> = tables.collect();
        let (layers, files, marks) = charted(service, &tables);
        let (root, refused) = match root {
            Ok(root) => (Some(*root), None),
            Err(refusal) => (None, Some(refusal.to_string())),
        };
        Ok(Chart {
            reference: found.reference.to_string(),
            image_bytes: found.layers.iter().map(|layer| layer.size).sum(),
            service: RecordedService {
                root,
                refused,
                ..recorded(&kept.recording, service, kept.name, kept.evidence.own)
            },
            layers,
            files,
            marks,
        })
    }

    /// Where the files of a recorded layer have their pages, by an index that the image has or that this host keeps.
    fn table_of(&self, layer: &RecordedLayer, indexes: &[PreparedLayer]) -> Option<Table> {
        let key = LayerKey {
            layer: layer.layer,
            index: layer.index,
        };
        match indexes.iter().find(|known| known.key == key) {
            Some(known) => Some(Table::new(&known.index)),
            // Another one than the image is used with now.
            None => {
                let bytes = self.images.store().index_bytes(key).ok()?;
                Some(Table::new(&LayerIndex::decode(&bytes).ok()?))
            }
        }
    }
}

/// A recording, and what it rests on or why it is refused.
type Judged<R> = (KeptRecording, Result<Root, R>);

/// A service in one.
type Chosen<'a, R> = (&'a KeptRecording, &'a Result<Root, R>, &'a Service);

/// The service that is meant.
fn choose<'a, R>(all: &'a [Judged<R>], selected: Option<&str>) -> Result<Chosen<'a, R>, Failure> {
    let services = all.iter().flat_map(|(kept, root)| {
        let services = kept.recording.services.iter();
        services.map(move |service| (kept, root, service))
    });
    let mut services: Vec<_> = services.collect();
    let none = |text: String| Failure::new(FailureKind::NotFound, text);
    if services.is_empty() {
        return Err(none(
            "no service was recorded; `xebec record` does that".to_owned(),
        ));
    }
    let line = |service: &Service| service.key.argv.join(" ");
    let lines = |services: &[Chosen<'a, R>]| {
        let mut lines: Vec<String> = services.iter().map(|(_, _, service)| line(service)).collect();
        lines.sort();
        lines.dedup();
        lines.join("\", \"")
    };
    if let Some(selected) = selected {
        let known = lines(&services);
        let digest = selected.strip_prefix("sha256:").unwrap_or(selected);
        let by_digest = |kept: &KeptRecording| digest.len() >= 6 && kept.name.hex().starts_with(digest);
        let is_exact = services.iter().any(|(_, _, service)| line(service) == selected);
        services.retain(|(kept, _, service)| {
            let line = line(service);
            by_digest(kept)
                || if is_exact {
                    line == selected
                } else {
                    line.contains(selected)
                }
        });
        if services.is_empty() {
            return Err(none(format!(
                "no recorded service is \"{selected}\"; there are \"{known}\""
            )));
        }
        let found = lines(&services);
        if found.contains("\", \"") {
            let message = format!("several recorded services fit \"{selected}\": \"{found}\"");
            return Err(Failure::new(FailureKind::Usage, message));
        }
    }
    let newest = services
        .into_iter()
        .max_by_key(|(_, root, service)| (root.is_ok(), !service.is_predicted(), service.recorded));
    newest.ok_or_else(|| none("no service was recorded".to_owned()))
}

/// A layer of a recording, with the facts about its files.
struct LayerTable {
    layer: Digest,
    number: usize,
    /// Of its data space.
    pages: u64,
    table: Option<Table>,
}

/// The files of a layer by their place in its data space.
struct Table {
    /// First page, page after the last one, place of the file in `files`, and how many of its pages are in extents
    /// before. Ascending.
    extents: Vec<(u64, u64, usize, u64)>,
    /// Path, and how many pages it has.
    files: Vec<(String, u64)>,
}

impl Table {
    fn new(index: &LayerIndex) -> Self {
        let (mut extents, mut files) = (Vec::new(), Vec::new());
        for entry in &index.entries {
            let EntryKind::File { extents: parts, .. } = &entry.kind else {
                continue;
            };
            let mut pages = 0;
            for part in parts {
                let first = part.data_offset / PAGE_SIZE;
                let length = part.length.div_ceil(PAGE_SIZE);
                extents.push((first, first + length, files.len(), pages));
                pages += length;
            }
            if pages > 0 {
                files.push((entry.path.to_string(), pages));
            }
        }
        extents.sort_unstable();
        Self { extents, files }
    }

    /// The parts of a run that are in files: place of the file, first page in it, how many.
    fn parts(&self, run: PageRun) -> impl Iterator<Item = (usize, u64, u64)> + '_ {
        let from = self.extents.partition_point(|(_, end, _, _)| *end <= run.first);
        let near = self.extents.get(from..).unwrap_or_default().iter();
        near.take_while(move |(first, ..)| *first < run.end())
            .map(move |(first, end, file, before)| {
                let (from, to) = (run.first.max(*first), run.end().min(*end));
                (*file, before + from - first, to.saturating_sub(from))
            })
    }
}

/// The pages that a service touched, by the files of the layers.
fn charted(service: &Service, tables: &[LayerTable]) -> (Vec<ChartLayer>, Vec<ChartFile>, Vec<Mark>) {
    // By place of the layer in the recording and of the file in its table: sorted, since layers and files are by then.
    let mut raw: Vec<((usize, usize, usize), Mark)> = Vec::new();
    let mut at = 0;
    for seen in &service.touched {
        let place = usize::from(seen.run.layer);
        let Some(layer) = tables.get(place) else { continue };
        let steady = seen.seen == service.runs;
        let parts: Vec<(usize, u64, u64)> = match &layer.table {
            Some(table) => table.parts(seen.run).collect(),
            None => vec![(0, seen.run.first, u64::from(seen.run.pages))],
        };
        for (file, first, pages) in parts {
            let mark = Mark {
                file: 0,
                first,
                pages,
                at,
                steady,
            };
            raw.push(((layer.number, place, file), mark));
            at += pages;
        }
    }
    let mut names: Vec<(usize, usize, usize)> = raw.iter().map(|(name, _)| *name).collect();
    names.sort_unstable();
    names.dedup();
    let mut layers: Vec<ChartLayer> = Vec::new();
    let mut files = Vec::new();
    let mut last = None;
    for (number, place, file) in names.iter().copied() {
        let Some(layer) = tables.get(place) else { continue };
        if last != Some(place) {
            last = Some(place);
            layers.push(ChartLayer {
                layer: layer.layer,
                number,
                files: layer.table.as_ref().map(|table| table.files.len()),
            });
        }
        let known = layer.table.as_ref().and_then(|table| table.files.get(file));
        files.push(ChartFile {
            layer: layers.len() - 1,
            path: known.map(|(path, _)| path.clone()),
            pages: known.map_or(layer.pages, |(_, pages)| *pages),
        });
    }
    let marks = raw.into_iter().map(|(name, mark)| Mark {
        file: names.partition_point(|known| *known < name),
        ..mark
    });
    (layers, files, marks.collect())
}

#[cfg(test)]
mod tests {
    use xebec_format::runtime_image::{Recording, SeenRun, ServiceKey};
    use xebec_trust::Evidence;

    use super::*;

    fn service(line: &str, recorded: u64, touched: &[(u16, u64, u32, u8)]) -> Service {
        let touched = touched.iter().map(|(layer, first, pages, seen)| SeenRun {
            run: PageRun {
                layer: *layer,
                first: *first,
                pages: *pages,
            },
            seen: *seen,
        });
        Service {
            key: ServiceKey {
                argv: line.split(' ').map(str::to_owned).collect(),
                env: Default::default(),
            },
            probe: String::new(),
            recorded,
            runs: 2,
            recorder: String::new(),
            touched: touched.collect(),
        }
    }

    #[test]
    fn runs_are_split_where_files_end() {
        let table = |files: &[(&str, &[(u64, u64)])]| {
            let (mut extents, mut names) = (Vec::new(), Vec::new());
            for (path, parts) in files {
                let mut before = 0;
                for (first, end) in *parts {
                    extents.push((*first, *end, names.len(), before));
                    before += end - first;
                }
                names.push(((*path).to_owned(), before));
            }
            Table {
                extents,
                files: names,
            }
        };
        let layer = |name: &[u8], number, table| LayerTable {
            layer: Digest::of(name),
            number,
            pages: 50,
            table,
        };
        // The recording has the upper layer first.
        let upper = table(&[
            ("/a", &[(0, 3)]),
            ("/untouched", &[(3, 5)]),
            ("/b", &[(5, 7), (7, 20)]),
        ]);
        let tables = [
            layer(b"upper", 3, Some(upper)),
            layer(b"unknown", 2, None),
            layer(b"other", 1, Some(table(&[("/lower", &[(0, 9)])]))),
        ];
        let touched = [
            (0, 6, 4, 2),
            (2, 0, 1, 2),
            (0, 1, 5, 1),
            (1, 10, 2, 2),
            (7, 0, 1, 1),
        ];
        let (layers, files, marks) = charted(&service("x", 0, &touched), &tables);
        let numbers: Vec<_> = layers.iter().map(|layer| (layer.number, layer.files)).collect();
        assert_eq!(numbers, [(1, Some(1)), (2, None), (3, Some(3))]);
        let names: Vec<_> = files
            .iter()
            .map(|file| (file.layer, file.path.as_deref(), file.pages))
            .collect();
        let wanted = [
            (0, Some("/lower"), 9),
            (1, None, 50),
            (2, Some("/a"), 3),
            (2, Some("/untouched"), 2),
            (2, Some("/b"), 15),
        ];
        assert_eq!(names, wanted);
        let marks: Vec<_> = marks
            .iter()
            .map(|mark| (mark.at, mark.file, mark.first, mark.pages, mark.steady))
            .collect();
        let wanted = [
            // Over the border of two extents of a file.
            (0, 4, 1, 1, true),
            (1, 4, 2, 3, true),
            (4, 0, 0, 1, true),
            (5, 2, 1, 2, false),
            (7, 3, 0, 2, false),
            (9, 4, 0, 1, false),
            (10, 1, 10, 2, true),
        ];
        assert_eq!(marks, wanted);
    }

    #[test]
    fn a_service_is_named_by_its_words_or_its_recording() {
        let kept = |name: &[u8], services: &[(&str, u64)], admitted: bool| -> Judged<()> {
            let recording = Recording {
                image: Digest::of(b"image"),
                layers: Vec::new(),
                services: services
                    .iter()
                    .map(|(line, when)| service(line, *when, &[]))
                    .collect(),
                zeros: Vec::new(),
                zones: Vec::new(),
                segments: Vec::new(),
                indexes: Vec::new(),
            };
            let kept = KeptRecording {
                name: Digest::of(name),
                evidence: Evidence::default(),
                recording,
                zone: None,
            };
            (kept, if admitted { Ok(Root::Registry) } else { Err(()) })
        };
        let all = [
            kept(b"old", &[("nginx -g daemon", 10), ("nginx", 11)], true),
            kept(b"new", &[("nginx -g daemon", 20)], true),
            kept(b"weak", &[("sh", 99)], false),
        ];
        let chosen = |selected: Option<&str>| {
            choose(&all, selected).map(|(kept, _, service)| (kept.name, service.recorded))
        };
        let name = |text: &[u8]| Digest::of(text);
        assert_eq!(
            chosen(None).unwrap(),
            (name(b"new"), 20),
            "the newest that may be used"
        );
        assert_eq!(chosen(Some("-g")).unwrap(), (name(b"new"), 20));
        assert_eq!(chosen(Some("nginx")).unwrap(), (name(b"old"), 11), "just that");
        assert_eq!(chosen(Some("sh")).unwrap(), (name(b"weak"), 99));
        let hex = name(b"new").hex();
        for text in [&hex[..12], &hex, &format!("sha256:{hex}")] {
            assert_eq!(chosen(Some(text)).unwrap(), (name(b"new"), 20));
        }
        let several = chosen(Some("ngin")).unwrap_err();
        assert!(several.kind == FailureKind::Usage && several.message.contains("\"nginx -g daemon\""));
        let none = chosen(Some("httpd")).unwrap_err();
        assert!(none.kind == FailureKind::NotFound && none.message.contains("\"sh\""));
    }
}
