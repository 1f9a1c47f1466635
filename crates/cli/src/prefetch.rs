//! `xebec prefetch`: what services of an image read at their start comes to this host before one of them is started.

use xebec_keeper::client::{Daemon, unexpected_reply};
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::paths::Paths;
use xebec_protocol::wire::{Completion, Prefetch, Prefetched, PrefetchedService, Reply, Request};

use crate::args::PrefetchArgs;
use crate::progress::Progress;
use crate::{caller, text};

/// `xebec prefetch IMAGE`.
pub(crate) fn prefetch(paths: &Paths, args: &PrefetchArgs) -> Result<(), Failure> {
    let progress = Progress::of(format!("prefetch {}", args.image.image));
    let request = Request::Prefetch(Prefetch {
        image: caller::image_request(&args.image),
        services: args.services.clone(),
        completion: args.complete.map(|deadline| Completion {
            deadline_seconds: deadline.as_secs(),
        }),
    });
    let reply = Daemon::new(paths.clone()).ask(&request, &mut |reply| progress.show(reply))?;
    progress.end();
    let Reply::Prefetched(prefetched) = reply else {
        return Err(unexpected_reply());
    };
    match args.json {
        true => text::print_json(&prefetched)?,
        false => print(&args.image.image, &prefetched),
    }
    judge(&args.image.image, &prefetched)
}

fn print(image: &str, prefetched: &Prefetched) {
    let whole = if prefetched.complete {
        "; all of it is here"
    } else {
        ""
    };
    outln!("{image}: {}{whole}", prefetched.manifest);
    if prefetched.services.is_empty() && prefetched.unrecorded.is_empty() {
        outln!(
            "no service of it is recorded, so nothing is known to be read at its start; `xebec record` makes a recording"
        );
        return;
    }
    let mut rows = vec![text::row(["SERVICE", "PAGES", "MISSING", "FETCHED", ""])];
    rows.extend(prefetched.services.iter().map(|service| {
        let loaded = &service.loaded;
        vec![
            service.argv.join(" "),
            loaded.pages.to_string(),
            loaded.missing.to_string(),
            text::size(loaded.bytes),
            loaded.problem.clone().unwrap_or_default(),
        ]
    }));
    out!("{}", text::table(&rows));
}

/// The command fails if a service's pages are not here: a script that warms a host before it takes work asks that.
fn judge(image: &str, prefetched: &Prefetched) -> Result<(), Failure> {
    if let Some(unrecorded) = prefetched.unrecorded.first() {
        let message = format!(
            "{image} has no recording of a service whose command line begins with {unrecorded:?}; `xebec record --list {image}` lists \
             those that were recorded, and `xebec record` makes one"
        );
        return Err(Failure::new(FailureKind::NotFound, message));
    }
    let problem = |service: &PrefetchedService| {
        let kind = match service.loaded.recording {
            _ if service.is_refused => FailureKind::Trust,
            // Pages were not asked for at all.
            None => FailureKind::Host,
            Some(_) => FailureKind::Registry,
        };
        let problem = service.loaded.problem.as_ref()?;
        let message = format!("{image}, {:?}: {problem}", service.argv.join(" "));
        Some(Failure::new(kind, message))
    };
    let failure = prefetched.services.iter().find_map(problem);
    failure.map_or(Ok(()), Err)
}
