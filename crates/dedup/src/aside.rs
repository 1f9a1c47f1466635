//! A thread of its own with a low priority, for work that takes long and that nobody waits for.

use xebec_kernel::process::give_way;

use crate::error::DedupError;

/// The priority of such a thread, by nice(2).
const NICE: i32 = 10;

/// Does `work` in a thread of this name, with a low priority if it gives way. `on` is what it works on, for people.
///
/// # Errors
/// [`DedupError::Thread`] if there is no thread, or the work ends without an answer.
pub(crate) async fn aside<T: Send + 'static>(
    name: &str,
    on: &str,
    gives_way: bool,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, DedupError> {
    let (tell, told) = tokio::sync::oneshot::channel();
    let started = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        if gives_way && let Err(error) = give_way(NICE) {
            tracing::debug!("work aside goes on with the priority of everything else: {error}");
        }
        let _ = tell.send(work());
    });
    let failed = || DedupError::Thread(on.to_owned());
    started.map_err(|_| failed())?;
    told.await.map_err(|_| failed())
}
