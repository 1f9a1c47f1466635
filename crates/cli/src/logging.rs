//! Log lines on standard error: for a terminal, for a file, for programs, for the journal.

use std::ffi::OsStr;
use std::fmt;
use std::io::IsTerminal;
use std::path::Path;

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::{self, JsonFields, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;
use xebec_kernel::file::FileIdentity;
use xebec_protocol::settings::LogFormat;

/// Starts logging; `daemon` is the format of a daemon's log.
pub(crate) fn start(verbose: u8, daemon: Option<LogFormat>) {
    let default = match (verbose, daemon) {
        (0, None) => "warn",
        (0, Some(_)) | (1, _) => "info",
        _ => "debug",
    };
    let filter = EnvFilter::try_from_env("XEBEC_LOG").unwrap_or_else(|_| EnvFilter::new(default));
    let journal = is_the_journal(std::env::var_os("JOURNAL_STREAM").as_deref());
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // It reports them on standard error, and panics when that cannot be written; but writing there is what failed.
        .log_internal_errors(false)
        .with_target(false)
        .with_ansi(std::io::stderr().is_terminal() && !journal);
    let plain = format::format().without_time().with_target(false);
    match (daemon, journal) {
        (Some(LogFormat::Json), true) => builder
            .fmt_fields(JsonFields::new())
            .event_format(WithPriority(plain.json()))
            .init(),
        // The journal knows the time, and the level by the prefix.
        (_, true) => builder.event_format(WithPriority(plain.with_level(false))).init(),
        // On a terminal the time says nothing; in a log it says most.
        (None, false) => builder.without_time().init(),
        (Some(LogFormat::Text), false) => builder.init(),
        (Some(LogFormat::Json), false) => builder.json().init(),
    }
}

/// Whether standard error is connected to the journal: `JOURNAL_STREAM` names its device and inode (systemd.exec(5)).
/// A child that writes somewhere else inherits the variable, too.
fn is_the_journal(stream: Option<&OsStr>) -> bool {
    let Ok(identity) = FileIdentity::at(Path::new("/proc/self/fd/2")) else {
        return false;
    };
    let named = stream
        .and_then(OsStr::to_str)
        .and_then(|text| text.split_once(':'));
    named == Some((&identity.device.to_string(), &identity.inode.to_string()))
}

/// Begins each event with its priority, as sd-daemon(3) has it: `<4>` for a warning.
struct WithPriority<F>(F);

impl<S, N, F> FormatEvent<S, N> for WithPriority<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        write!(writer, "<{}>", priority(*event.metadata().level()))?;
        self.0.format_event(context, writer, event)
    }
}

/// Priorities of syslog(3).
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        Level::DEBUG | Level::TRACE => 7,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn only_the_stream_that_is_named_is_the_journal() {
        let own = std::fs::metadata("/proc/self/fd/2").unwrap();
        let name = format!("{}:{}", own.dev(), own.ino());
        assert!(is_the_journal(Some(OsStr::new(&name))));
        let other = format!("{}:{}", own.dev(), own.ino() + 1);
        for wrong in [other.as_str(), "", ":", "1", "x:y"] {
            assert!(!is_the_journal(Some(OsStr::new(wrong))), "{wrong}");
        }
        assert!(!is_the_journal(None));
    }
}
