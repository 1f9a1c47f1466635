//! Which recorded service a host means that has told only hashes of the words of its command line.
//!
//! The host chooses by itself once it has the recordings, with what it keeps to itself: variables, and how far it trusts each recording.
//! This choice says only which pages are sent before the host asks; a wrong one costs bytes.

use std::cmp::Reverse;
use std::collections::HashMap;

use xebec_format::runtime_image::{Recording, Service, ServiceKey};

use crate::start_request::{WantedService, WordHash};

/// A clock may be ahead by that much, in seconds.
const CLOCKS_APART: u64 = 24 * 60 * 60;

/// What an image runs by itself, as its configuration says.
#[derive(Clone, Copy, Debug, Default)]
pub struct OwnCommand<'a> {
    /// The beginning of the command line.
    pub entrypoint: &'a [String],
    /// The rest of it.
    pub command: &'a [String],
    /// Variables, as `NAME=value`.
    pub variables: &'a [String],
}

/// The service that is most likely meant, and the place of its recording among `recordings`; `None` if the host would start by none of
/// them. `now` is in seconds since 1970.
pub fn choose_service<'a>(
    wanted: &WantedService,
    image: &OwnCommand<'_>,
    recordings: impl IntoIterator<Item = &'a Recording>,
    now: u64,
) -> Option<(usize, &'a Service)> {
    let wanted = Wanted::new(wanted, image, now)?;
    let recordings = recordings.into_iter().enumerate();
    let chosen = recordings.filter_map(|(place, recording)| Some((place, wanted.service_in(recording)?)));
    let (place, best) = chosen.max_by_key(|(_, service)| service.rank())?;
    Some((place, best.service))
}

/// The service as far as it is known here.
struct Wanted<'a> {
    argv: Vec<WordHash>,
    variables: HashMap<&'a str, &'a str>,
    is_said_later: bool,
    now: u64,
}

impl<'a> Wanted<'a> {
    /// `None` if there is no command at all.
    fn new(wanted: &WantedService, image: &OwnCommand<'a>, now: u64) -> Option<Self> {
        let hashes = |words: &[String]| words.iter().map(|word| WordHash::of(word)).collect();
        // Docker's rules: an entrypoint replaces the image's entrypoint and command, a command only the command.
        let entrypoint: Vec<WordHash> = match &wanted.entrypoint {
            Some(entrypoint) => entrypoint.clone(),
            None => hashes(image.entrypoint),
        };
        let command: Vec<WordHash> = match wanted.entrypoint.is_none() && wanted.command.is_empty() {
            true => hashes(image.command),
            false => wanted.command.clone(),
        };
        let mut argv = [entrypoint, command].concat();
        let is_none = argv.first().is_none_or(|program| *program == WordHash::of(""));
        match is_none {
            true if wanted.is_said_later => argv.clear(),
            true => return None,
            false => {}
        }
        let variables = image.variables.iter().filter_map(|text| text.split_once('='));
        Some(Self {
            argv,
            // The last one of a name counts.
            variables: variables.collect(),
            is_said_later: wanted.is_said_later,
            now,
        })
    }

    /// The service in a recording that is closest to what is wanted, if one may be meant.
    fn service_in<'r>(&self, recording: &'r Recording) -> Option<Compared<'r>> {
        let all: Vec<_> = recording
            .services
            .iter()
            .map(|service| self.compare(service))
            .collect();
        let same = all.iter().filter(|service| service.is_line);
        // Variables that the image does not set may be the user's.
        let same = same.max_by_key(|compared| {
            let key = &compared.service.key;
            (
                Reverse(compared.lacking),
                key.env.len(),
                compared.is_real,
                compared.date,
            )
        });
        match same {
            Some(same) if !self.is_said_later || same.lacking == 0 => Some(*same),
            _ if self.is_said_later => all.into_iter().max_by_key(Compared::closeness),
            _ => None,
        }
    }

    /// Looks at a service. That hashes its words, so it is done once for each.
    fn compare<'r>(&self, service: &'r Service) -> Compared<'r> {
        let likeness = self.likeness(&service.key);
        let words = service.key.argv.len();
        Compared {
            service,
            likeness,
            is_line: self.argv.len() == words && likeness == words,
            lacking: self.lacking(&service.key),
            is_real: !service.is_predicted(),
            date: self.date(service),
        }
    }

    /// How many words of a command are the first ones of the one that is wanted.
    fn likeness(&self, key: &ServiceKey) -> usize {
        let both = self.argv.iter().zip(&key.argv);
        both.take_while(|(own, other)| **own == WordHash::of(other))
            .count()
    }

    /// How many variables of a service the image does not set to its values.
    fn lacking(&self, key: &ServiceKey) -> usize {
        let is_set = |(name, value): (&String, &String)| {
            self.variables.get(name.as_str()).copied() == Some(value.as_str())
        };
        key.env.iter().filter(|variable| !is_set(*variable)).count()
    }

    /// When a service was recorded; long ago if that is not yet, so that nobody's clock puts a recording before all others for ever.
    fn date(&self, service: &Service) -> u64 {
        let is_past = service.recorded <= self.now.saturating_add(CLOCKS_APART);
        if is_past { service.recorded } else { 0 }
    }
}

/// A service, as it was compared with the one that is wanted.
#[derive(Clone, Copy)]
struct Compared<'r> {
    service: &'r Service,
    /// How many of its words are the first ones of the one that is wanted.
    likeness: usize,
    /// It has the command line that is wanted.
    is_line: bool,
    /// How many of its variables the image does not set to its values.
    lacking: usize,
    /// It was recorded, not predicted.
    is_real: bool,
    /// When it was recorded.
    date: u64,
}

impl<'r> Compared<'r> {
    fn rank(&self) -> impl Ord + use<'r> {
        let is_exact = self.is_line && self.lacking == 0;
        (is_exact, self.is_line, self.closeness())
    }

    /// How like it is to the one that is wanted: words first, then variables, then that it was recorded and not predicted, then which was
    /// recorded last.
    fn closeness(&self) -> (usize, bool, bool, u64, &'r [String]) {
        (
            self.likeness,
            self.lacking == 0,
            self.is_real,
            self.date,
            &self.service.key.argv,
        )
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use xebec_format::digest::Digest;

    use super::*;

    const NOW: u64 = 1_000_000;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn hashes(text: &str) -> Vec<WordHash> {
        words(text).iter().map(|word| WordHash::of(word)).collect()
    }

    fn service(argv: &str, recorded: u64, env: &[(&str, &str)]) -> Service {
        let env = env
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Service {
            key: ServiceKey {
                argv: words(argv),
                env: env.collect(),
            },
            probe: String::new(),
            recorded,
            runs: 1,
            recorder: String::new(),
            touched: Vec::new(),
        }
    }

    fn recording(services: &[Service]) -> Recording {
        Recording {
            image: Digest::of(b"image"),
            layers: Vec::new(),
            services: services.to_vec(),
            zeros: Vec::new(),
            zones: Vec::new(),
            segments: Vec::new(),
            indexes: Vec::new(),
        }
    }

    /// The chosen service of an image that runs `entry web` with `MODE=fast`.
    fn chosen(wanted: &WantedService, recordings: &[Vec<Service>]) -> Option<String> {
        let (entrypoint, command, variables) = (words("entry"), words("web"), words("MODE=slow MODE=fast"));
        let image = OwnCommand {
            entrypoint: &entrypoint,
            command: &command,
            variables: &variables,
        };
        let recordings: Vec<_> = recordings.iter().map(|services| recording(services)).collect();
        let (place, service) = choose_service(wanted, &image, &recordings, NOW)?;
        Some(format!(
            "{place}: {} {}",
            service.key.argv.join(" "),
            service.recorded
        ))
    }

    fn later() -> WantedService {
        WantedService {
            is_said_later: true,
            ..WantedService::default()
        }
    }

    #[test]
    fn the_command_line_follows_dockers_rules() {
        let all = [vec![
            service("entry web", 1, &[]),
            service("entry worker", 2, &[]),
            service("sh", 3, &[]),
            service("sh worker", 4, &[]),
        ]];
        let wanted = |entrypoint: Option<&str>, command: &str| WantedService {
            entrypoint: entrypoint.map(hashes),
            command: hashes(command),
            is_said_later: false,
        };
        assert_eq!(chosen(&wanted(None, ""), &all).unwrap(), "0: entry web 1");
        assert_eq!(
            chosen(&wanted(None, "worker"), &all).unwrap(),
            "0: entry worker 2"
        );
        assert_eq!(chosen(&wanted(Some("sh"), ""), &all).unwrap(), "0: sh 3");
        assert_eq!(
            chosen(&wanted(Some("sh"), "worker"), &all).unwrap(),
            "0: sh worker 4"
        );
        assert_eq!(chosen(&wanted(None, "other"), &all), None);
        assert_eq!(chosen(&wanted(Some(""), ""), &all), None, "no command");
        let mut empty = wanted(Some(""), "");
        empty.is_said_later = true;
        assert_eq!(chosen(&empty, &all).unwrap(), "0: sh worker 4", "the newest");
    }

    #[test]
    fn without_a_command_the_most_like_one_stands_for_it() {
        let all = [
            vec![service("entry worker", 5, &[]), service("sh", 9, &[])],
            vec![service("entry web --port 80", 3, &[])],
        ];
        assert_eq!(chosen(&later(), &all).unwrap(), "1: entry web --port 80 3");
        assert_eq!(chosen(&WantedService::default(), &all), None);
        assert_eq!(chosen(&later(), &[Vec::new()]), None);
    }

    #[test]
    fn variables_of_the_image_count_before_dates() {
        let fast = [("MODE", "fast")];
        let all = [
            vec![
                service("entry web", 1, &[]),
                service("entry web", 1, &fast),
                service("entry web", 3, &[("MODE", "slow")]),
            ],
            vec![service("entry web", 9, &[("KEY", "the user's")])],
        ];
        for wanted in [WantedService::default(), later()] {
            let image = OwnCommand {
                entrypoint: &words("entry"),
                command: &words("web"),
                variables: &words("MODE=fast"),
            };
            let recordings: Vec<_> = all.iter().map(|services| recording(services)).collect();
            let (place, service) = choose_service(&wanted, &image, &recordings, NOW).unwrap();
            assert_eq!((place, service.key.env.len()), (0, 1));
            assert_eq!(service.recorded, 1);
        }
        // The user may have set what the image does not.
        let users = &all[1..];
        assert_eq!(
            chosen(&WantedService::default(), users).unwrap(),
            "0: entry web 9"
        );
    }

    #[test]
    fn what_was_recorded_counts_before_what_is_predicted() {
        let predicted = |argv: &str, recorded| Service {
            recorder: "xebec-registry 1 predict".to_owned(),
            ..service(argv, recorded, &[])
        };
        let all = [
            vec![predicted("entry web", 9)],
            vec![service("entry web", 1, &[])],
            vec![predicted("entry worker", 8)],
        ];
        assert_eq!(chosen(&WantedService::default(), &all).unwrap(), "1: entry web 1");
        assert_eq!(chosen(&later(), &all).unwrap(), "1: entry web 1");
        assert_eq!(
            chosen(&WantedService::default(), &all[..1]).unwrap(),
            "0: entry web 9"
        );
        let like = [vec![predicted("entry a", 9)], vec![service("entry b", 1, &[])]];
        assert_eq!(chosen(&later(), &like).unwrap(), "1: entry b 1");
    }

    #[test]
    fn the_newest_of_equals_counts_unless_it_is_of_the_future() {
        let all = [
            vec![service("entry web", 7, &[])],
            vec![service("entry web", 8, &[])],
            vec![service("entry web", NOW + 2 * CLOCKS_APART, &[])],
        ];
        assert_eq!(chosen(&WantedService::default(), &all).unwrap(), "1: entry web 8");
    }
}
