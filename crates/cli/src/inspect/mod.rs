//! `xebec inspect`: containers and images by their names.

mod container;
mod docker_fields;
mod image;

use serde_json::Value;
use xebec_container::FindError;
use xebec_images::inventory::ImageInfo;
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::paths::Paths;
use xebec_recordings::recordings::Recordings;

use crate::args::{InspectArgs, InspectType};
use crate::containers::Known;
use crate::failures::Failures;
use crate::template::print_found;

/// The thing that has one of the names.
enum Found {
    /// A container, as it is printed.
    Container(Value),
    Image(Box<ImageInfo>),
}

/// `xebec inspect NAME…`. It names each thing that it does not find, and prints everything else.
pub(crate) fn inspect(paths: &Paths, args: &InspectArgs) -> Result<(), Failure> {
    if args.runtime_image {
        return image::runtime_images(&Recordings::open(paths)?, args);
    }
    let names = Names {
        paths,
        args,
        known: Known::read(paths),
    };
    let mut failures = Failures::default();
    let found = args.names.iter().map(|name| names.find(name));
    let found: Vec<Found> = found.filter_map(|one| failures.keep(one)).collect();
    failures.keep(print(&found, args));
    failures.end()
}

/// Images only are shown as tables, unless JSON or a format is asked for.
fn print(found: &[Found], args: &InspectArgs) -> Result<(), Failure> {
    let is_image = |one: &Found| matches!(one, Found::Image(_));
    if found.is_empty() && args.format.is_none() && !args.json {
        return Ok(());
    }
    if args.json || args.format.is_some() || !found.iter().all(is_image) {
        let values = found.iter().map(Found::value).collect::<Result<Vec<_>, _>>()?;
        return print_found(&values, args.format.as_ref());
    }
    for (at, one) in found.iter().enumerate() {
        if let Found::Image(image) = one {
            out!("{}", if at == 0 { "" } else { "\n" });
            image::print(image);
        }
    }
    Ok(())
}

impl Found {
    fn value(&self) -> Result<Value, Failure> {
        let value = match self {
            Self::Container(value) => Ok(value.clone()),
            Self::Image(image) => serde_json::to_value(image),
        };
        value.map_err(|error| Failure::new(FailureKind::Host, error))
    }
}

/// The places in which names are looked up.
struct Names<'a> {
    paths: &'a Paths,
    args: &'a InspectArgs,
    known: Known,
}

impl Names<'_> {
    fn find(&self, name: &str) -> Result<Found, Failure> {
        if let Some(container) = self.container(name)? {
            return Ok(Found::Container(container));
        }
        let recordings = Recordings::open(self.paths)?;
        if self.args.may_be_a_container() {
            image::refuse_unknown(recordings.images(), name)?;
        }
        let image = image::find(recordings.images(), &self.args.image(name))?;
        Ok(Found::Image(Box::new(image)))
    }

    /// The container of that name. `None` if an image is meant.
    fn container(&self, name: &str) -> Result<Option<Value>, Failure> {
        let is_container = self.args.kind == Some(InspectType::Container);
        if !is_container && !self.args.may_be_a_container() {
            return Ok(None);
        }
        match container::find(self.paths, name) {
            Ok(container) => container::shown(self.paths, &container, &self.known).map(Some),
            Err(FindError::Unreadable(error)) => Err(Failure::host("look for a container", error)),
            Err(error) if is_container => Err(Failure::new(FailureKind::NotFound, error)),
            Err(_) => Ok(None),
        }
    }
}
