//! Progress on a terminal, and notices; silence when standard error is no terminal.

use std::collections::HashMap;
use std::io::IsTerminal;
use std::sync::{Arc, Mutex};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use xebec_images::images::Report;
use xebec_protocol::wire::Reply;

/// Bars by what they are of.
pub(crate) struct Progress {
    bars: MultiProgress,
    known: Mutex<HashMap<String, ProgressBar>>,
}

impl Progress {
    /// Bars on standard error, if it is a terminal.
    pub(crate) fn new() -> Self {
        let target = match std::io::stderr().is_terminal() {
            true => ProgressDrawTarget::stderr(),
            false => ProgressDrawTarget::hidden(),
        };
        Self {
            bars: MultiProgress::with_draw_target(target),
            known: Mutex::default(),
        }
    }

    /// Shows a progress reply or a notice.
    pub(crate) fn show(&self, reply: &Reply) {
        match reply {
            Reply::Notice { text } => self.bars.suspend(|| errln!("note: {text}")),
            Reply::Progress { what, done, total } => {
                let mut known = self
                    .known
                    .lock()
                    .unwrap_or_else(std::sync::PoisonError::into_inner);
                let bar = known
                    .entry(what.clone())
                    .or_insert_with(|| self.bar(what, *total));
                bar.set_position(*done);
                if Some(*done) == *total {
                    bar.finish_and_clear();
                }
            }
            _ => {}
        }
    }

    /// Shows nothing more: what is written now stays.
    pub(crate) fn end(&self) {
        let _ = self.bars.clear();
        self.bars.set_draw_target(ProgressDrawTarget::hidden());
    }

    /// A report for the host library.
    pub(crate) fn report(self: &Arc<Self>) -> Report {
        let this = self.clone();
        Arc::new(move |reply| this.show(&reply))
    }

    fn bar(&self, what: &str, total: Option<u64>) -> ProgressBar {
        let bar = self.bars.add(ProgressBar::new(total.unwrap_or(0)));
        let template = "{msg:40} {bar:30} {decimal_bytes:>10} / {decimal_total_bytes:10} {decimal_bytes_per_sec:>12} {eta:>5}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_message(what.to_owned());
        bar
    }
}
