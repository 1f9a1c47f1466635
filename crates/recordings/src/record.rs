//! Records the pages that a service touches. The service runs until it is ready, on a view of its own of which no page is in any
//! page cache, and every page that is read until then is noted. It may run again, when these are in the page cache, for the others.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use serde::Serialize;
use xebec_container::{Directories, Event, ImageConfig, RunOptions};
use xebec_format::PAGE_SIZE;
use xebec_format::digest::Digest;
use xebec_images::images::Report;
use xebec_keeper::client::{Daemon, unexpected_reply};
use xebec_kernel::file::FileIdentity;
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::paths::Paths;
use xebec_protocol::wire::{Allowed, Holder, ImageRequest, Mounted, Purpose, Reply, Request};

use crate::recorder::{Page, Recorder, Watched};

/// How a service is recorded.
#[derive(Clone, Debug)]
pub struct RecordOptions {
    /// How it is run. It is stopped when it is ready; one without a probe runs to its end.
    pub run: RunOptions,
    /// How often it is run. More than once: each time again at full speed, too.
    pub repeat: u8,
    /// How much longer than to the probe it is recorded.
    pub settle: Duration,
}

/// A page that was touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TouchedPage {
    /// The layer's place among the different layers of the image, from the bottom, counted from 0.
    pub layer: u16,
    /// The page of its data space.
    pub page: u64,
    /// By how many of the runs.
    pub seen: u8,
}

/// The recorded pages, while the layers that they belong to stay in the cache.
pub struct Session<'a> {
    /// The image, as it was mounted last.
    pub mounted: Mounted,
    /// Every page that any run touched, in the order of first access of the first run that touched it; pages that only a run at
    /// full speed touched come after the others of that time.
    pub touched: Vec<TouchedPage>,
    /// The service's command line.
    pub argv: Vec<String>,
    config: ImageConfig,
    _view: HeldView<'a>,
}

impl Session<'_> {
    /// The value of a variable of the container: as it was given, else as the image sets it.
    pub fn variable(&self, name: &str, given: &[(String, String)]) -> Option<String> {
        let image = self.config.env.iter().filter_map(|text| text.split_once('='));
        let given = given.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let all: Vec<(&str, &str)> = image.chain(given).collect();
        let last = all.iter().rfind(|(other, _)| *other == name);
        last.map(|(_, value)| (*value).to_owned())
    }
}

/// A view that is given back at the end.
pub(super) struct HeldView<'a> {
    daemon: &'a Daemon,
    request: Request,
}

impl Drop for HeldView<'_> {
    fn drop(&mut self) {
        // If the view cannot be given back now, the daemon takes it back when it sees that this process is gone.
        let _ = self.daemon.ask(&self.request, &mut |_| ());
    }
}

/// Runs a service as often as asked and gives what it touched.
///
/// # Errors
/// When the image cannot be mounted, the service does not become ready, or what it reads cannot be recorded.
pub fn record<'a>(
    daemon: &'a Daemon,
    paths: &Paths,
    image: &ImageRequest,
    options: &RecordOptions,
    report: &Report,
) -> Result<Session<'a>, Failure> {
    let mut merged = Merged::default();
    let mut last = None;
    let mut recorded = None;
    for run in 0..options.repeat.max(1) {
        report(Reply::items(
            "record",
            u64::from(run),
            u64::from(options.repeat.max(1)),
        ));
        // The one before goes first: views of one image share nothing, but a container may hold a port.
        drop(last.take());
        let (mounted, view) = hold(daemon, image, &format!("record-{run}"), report)?;
        let now = (mounted.manifest, mounted.layers.clone());
        if recorded.get_or_insert_with(|| now.clone()) != &now {
            let message = format!(
                "{} is another image, or read by other indexes, than in the run before; record it again",
                mounted.reference
            );
            return Err(Failure::new(FailureKind::Usage, message));
        }
        let config = ImageConfig::from_json(&mounted.config)
            .map_err(|error| Failure::new(FailureKind::Integrity, error))?;
        let mut pages = run_once(paths, &mounted, &config, options)?;
        if options.repeat > 1 {
            // Pages that the view has in memory raise no event any more. So this run is as fast as a start will be, and a program may
            // read other pages for that; and it adds only pages that the run before did not read, until its end.
            pages.extend(run_once(paths, &mounted, &config, options)?);
        }
        merged.add(&pages);
        last = Some((mounted, view, config));
    }
    let Some((mounted, view, config)) = last else {
        return Err(Failure::new(FailureKind::Usage, "nothing was recorded"));
    };
    if merged.pages.is_empty() {
        let message = "nothing of the image was read, so there is nothing to record";
        return Err(Failure::new(FailureKind::Usage, message));
    }
    let argv =
        xebec_container::command_line(&config, options.run.entrypoint.as_deref(), &options.run.command)
            .map_err(|error| Failure::new(FailureKind::Usage, error))?;
    Ok(Session {
        mounted,
        touched: merged.pages,
        argv,
        config,
        _view: view,
    })
}

/// Mounts an image to be recorded. Pages of its layers stay in the cache for as long as the view is held, and none
/// comes in that was not compared.
pub(super) fn hold<'a>(
    daemon: &'a Daemon,
    image: &ImageRequest,
    what: &str,
    report: &Report,
) -> Result<(Mounted, HeldView<'a>), Failure> {
    let holder = Holder::this_process(what)?;
    let request = Request::Mount {
        image: image.clone(),
        holder: holder.clone(),
        require_lazy: false,
        completion: None,
        purpose: Purpose::Recording,
        allowed: Allowed::default(),
        wants_configuration: false,
    };
    match daemon.ask(&request, &mut |reply| report(reply.clone()))? {
        Reply::Mounted(mounted) => {
            let request = Request::Release {
                view: Some(mounted.view.clone()),
                holder,
            };
            Ok((*mounted, HeldView { daemon, request }))
        }
        _ => Err(unexpected_reply()),
    }
}

/// One run under a recorder; the pages in the order of first access.
fn run_once(
    paths: &Paths,
    mounted: &Mounted,
    config: &ImageConfig,
    options: &RecordOptions,
) -> Result<Vec<Page>, Failure> {
    let Some(mount) = &mounted.recording else {
        return Err(Failure::new(
            FailureKind::Host,
            "the daemon cannot record; is it of an older version? `xebec daemon upgrade` replaces it",
        ));
    };
    let recorder = Recorder::start(mount, data_files(paths, mounted)?)?;
    let directories = Directories {
        state: paths.containers(),
        run: paths.run().to_owned(),
    };
    let run = RunOptions {
        exit_on_ready: !options.run.probes.is_empty(),
        rm: true,
        outlives_supervisor: false,
        // Standard output is for messages about the recording.
        stdout_to_stderr: true,
        ..options.run.clone()
    };
    let outcome = xebec_container::run(
        &mounted.path,
        config,
        &run,
        &directories,
        &mut |event| match event {
            Event::Ready { .. } => {
                std::thread::sleep(options.settle);
                recorder.freeze();
            }
            Event::Exited { .. } => recorder.freeze(),
            _ => {}
        },
    );
    let pages = recorder.finish()?;
    let code = outcome.map_err(|error| Failure::new(FailureKind::Host, error))?;
    if code.0 != 0 {
        let message = format!(
            "the service ended with code {}, so what it touched is not its start; give it a --probe, or another command",
            code.0
        );
        return Err(Failure::new(FailureKind::Usage, message));
    }
    Ok(pages)
}

/// The layers' data files, as the recorder recognises them.
fn data_files(paths: &Paths, mounted: &Mounted) -> Result<HashMap<FileIdentity, Watched>, Failure> {
    let mut files = HashMap::new();
    let mut layers: Vec<Digest> = Vec::new();
    for pair in &mounted.layers {
        // A layer may stand in an image twice: it counts where it stands first.
        if layers.contains(&pair.layer) {
            continue;
        }
        layers.push(pair.layer);
        let key: xebec_cache::store::LayerKey = (*pair).into();
        let path = key.data_path(&paths.layers());
        let metadata = std::fs::metadata(&path)
            .map_err(|error| Failure::host(format!("look at {}", path.display()), error))?;
        let identity = FileIdentity::from(&metadata);
        let layer =
            u16::try_from(layers.len() - 1).map_err(|error| Failure::new(FailureKind::Usage, error))?;
        let pages = metadata.len().div_ceil(PAGE_SIZE);
        files.insert(identity, Watched { layer, pages });
    }
    Ok(files)
}

/// Pages of several runs.
#[derive(Default)]
struct Merged {
    pages: Vec<TouchedPage>,
    places: HashMap<Page, usize>,
}

impl Merged {
    /// Pages may be named twice: the kernel takes them out of memory when it needs that.
    fn add(&mut self, run: &[Page]) {
        let mut new = HashSet::new();
        for page in run.iter().filter(|page| new.insert(**page)) {
            match self.places.get(page).and_then(|place| self.pages.get_mut(*place)) {
                Some(known) => known.seen = known.seen.saturating_add(1),
                None => {
                    self.places.insert(*page, self.pages.len());
                    self.pages.push(TouchedPage {
                        layer: page.layer,
                        page: page.number,
                        seen: 1,
                    });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_merge_in_the_order_of_first_access() {
        let page = |number| Page { layer: 1, number };
        let mut merged = Merged::default();
        merged.add(&[page(5), page(3)]);
        merged.add(&[page(3), page(9), page(5), page(3)]);
        merged.add(&[page(9)]);
        let seen: Vec<_> = merged.pages.iter().map(|page| (page.page, page.seen)).collect();
        assert_eq!(seen, [(5, 2), (3, 2), (9, 2)]);
    }
}
