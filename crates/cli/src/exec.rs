//! `xebec exec` and `top`.

use std::process::ExitCode;

use xebec_container::{ExecOptions, Screen, processes};
use xebec_keeper::client::Daemon;
use xebec_kernel::clock::milliseconds_since_1970;
use xebec_kernel::terminal::printable;
use xebec_protocol::failure::Failure;
use xebec_protocol::paths::Paths;

use crate::args::{ExecArgs, TopArgs};
use crate::container_lookup::directories;
use crate::container_lookup::{find, find_going_on};
use crate::slow_readers::{self, SlowReaders};
use crate::text;

/// `xebec exec NAME CMD…`.
pub(crate) fn exec(paths: &Paths, args: &ExecArgs) -> Result<ExitCode, Failure> {
    let options = ExecOptions {
        command: args.command().to_vec(),
        env: args.variables.all(),
        workdir: args.workdir.clone(),
        user: args.user.clone(),
        interactive: args.interactive,
        tty: args.tty,
        screen: Screen::default(),
        detach: args.detach,
    };
    let record = find_going_on(paths, args.name())?;
    let (daemon, began_ms) = (Daemon::new(paths.clone()), milliseconds_since_1970());
    let screen = args.tty.then(|| options.screen.clone());
    let readers = (!args.detach).then(|| SlowReaders::watch(&daemon, &record.id, screen));
    let ended = xebec_container::exec(&record, &options, &directories(paths));
    drop(readers);
    if !args.detach && !matches!(ended, Ok(xebec_container::ExitCode(0))) {
        slow_readers::tell_failed(paths, &record.id, began_ms);
    }
    match ended {
        Ok(code) => Ok(code.into()),
        Err(error) => {
            errln!("xebec: {error}");
            Ok(error.exit_code().into())
        }
    }
}

/// `xebec top NAME`.
pub(crate) fn top(paths: &Paths, args: &TopArgs) -> Result<(), Failure> {
    let record = find(paths, &args.name)?;
    let found = processes(&record).map_err(|error| Failure::host("list processes", error))?;
    if args.json {
        return text::print_json(&found);
    }
    let heads = ["PID", "IN CONTAINER", "USER", "TIME", "COMMAND"];
    let mut rows = vec![text::row(heads)];
    for process in found {
        let inside = process.pid_inside.map(|pid| pid.to_string());
        rows.push(vec![
            process.pid.to_string(),
            inside.unwrap_or_else(|| "-".to_owned()),
            printable(&process.user.unwrap_or_else(|| process.uid.to_string())),
            processor_time(process.cpu_ms),
            printable(&process.command),
        ]);
    }
    out!("{}", text::table(&rows));
    Ok(())
}

/// As `ps` shows it: hours, minutes and seconds.
fn processor_time(milliseconds: u64) -> String {
    let seconds = milliseconds / 1000;
    format!(
        "{:02}:{:02}:{:02}",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60
    )
}

#[cfg(test)]
mod tests {
    use super::processor_time;

    #[test]
    fn processor_time_is_shown_as_ps_does() {
        assert_eq!(processor_time(59_999), "00:00:59");
        assert_eq!(processor_time(3_661_000), "01:01:01");
        assert_eq!(processor_time(360_000_000), "100:00:00");
    }
}
