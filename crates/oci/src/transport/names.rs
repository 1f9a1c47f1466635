//! Names of hosts to addresses, apart from everything else that blocks.
//!
//! The system's resolver blocks its thread, for half a minute and more if a name server is silent, and cannot be told to
//! stop. So look-ups have threads of their own, as many as are under way: pages of other images are decoded meanwhile. A
//! name is looked up once at a time, however many requests wait for it, and what a host can be asked at once is limited.
//!
//! Names that users gave and names that registries gave do not stand in each other's way, and no registry has more than its
//! share of the latter: one that sends each request to another silent name holds up itself.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::sync::oneshot;

/// Look-ups under way at most, in this process. Real hosts have a few registries, each of which redirects to one or two hosts.
const AT_ONCE: usize = 64;
/// Of these, such as one registry gave: it needs no more hosts at a time than it redirects to, and a token server.
const OF_ONE: usize = 8;
/// Stack of such a thread: the resolvers of C libraries take some tens of KiB, and the daemon's memory is locked.
const STACK: usize = 256 << 10;

/// What blocks.
type LookUp = dyn Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync;
/// What everybody who waits for a name gets.
type Found = Result<Arc<[SocketAddr]>, Arc<str>>;
type Pending = Shared<BoxFuture<'static, Found>>;
/// The registry for which a look-up began, if that is known.
type Namer = Option<Arc<str>>;

tokio::task_local! {
    /// The registry for which a request is made, which may have named the host that is asked.
    pub(crate) static NAMER: Arc<str>;
}

/// Look-ups of names of one origin.
pub(crate) struct Names {
    look_up: Arc<LookUp>,
    /// Under way, each with the registry for which it began.
    pending: Arc<Mutex<HashMap<String, (Pending, Namer)>>>,
    /// Whether registries gave them.
    are_told: bool,
}

fn by_system(name: &str) -> io::Result<Vec<SocketAddr>> {
    Ok((name, 0).to_socket_addrs()?.collect())
}

/// One for all clients, which bounds the threads of all of them.
static NAMED: LazyLock<Arc<Names>> = LazyLock::new(|| Arc::new(Names::new(Arc::new(by_system), false)));
/// The same for what registries name.
static TOLD: LazyLock<Arc<Names>> = LazyLock::new(|| Arc::new(Names::new(Arc::new(by_system), true)));

impl Names {
    /// The system's resolver, for names that users gave.
    pub(crate) fn by_system() -> Arc<Self> {
        NAMED.clone()
    }

    /// The system's resolver, for names that registries gave.
    pub(crate) fn told() -> Arc<Self> {
        TOLD.clone()
    }

    fn new(look_up: Arc<LookUp>, are_told: bool) -> Self {
        Self {
            look_up,
            pending: Arc::default(),
            are_told,
        }
    }

    /// The addresses of `name`, by a look-up that is under way or by a new one, which `namer` needs.
    fn addresses(&self, name: String, namer: Namer) -> Pending {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((found, _)) = pending.get(&name) {
            return found.clone();
        }
        let of_it = pending.values().filter(|(_, other)| *other == namer).count();
        let limit = match pending.len() {
            AT_ONCE.. => Some(AT_ONCE),
            _ if self.are_told && of_it >= OF_ONE => Some(OF_ONE),
            _ => None,
        };
        if let Some(limit) = limit {
            let whose = if limit == OF_ONE {
                " of the same registry"
            } else {
                ""
            };
            let reason =
                format!("{limit} other names{whose} are being looked up; is the name server silent?");
            return std::future::ready(Err(reason.into())).boxed().shared();
        }
        let (tell, told) = oneshot::channel();
        let (look_up, table, looked_up) = (self.look_up.clone(), self.pending.clone(), name.clone());
        let work = move || {
            let found = look_up(&looked_up);
            // First out of the table, so that whoever comes after this answer gets a newer one.
            table
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .remove(&looked_up);
            let _ = tell.send(found.map(Arc::from).map_err(|error| error.to_string().into()));
        };
        let thread = std::thread::Builder::new()
            .name("look-up".to_owned())
            .stack_size(STACK);
        if let Err(error) = thread.spawn(work) {
            let reason = format!("cannot start a thread: {error}");
            return std::future::ready(Err(reason.into())).boxed().shared();
        }
        let found: Pending = told
            .map(|found| found.unwrap_or_else(|_| Err("the look-up died".into())))
            .boxed()
            .shared();
        pending.insert(name, (found.clone(), namer));
        found
    }
}

impl Resolve for Names {
    fn resolve(&self, name: Name) -> Resolving {
        let namer = NAMER.try_with(Arc::clone).ok();
        let found = self.addresses(name.as_str().to_owned(), namer);
        Box::pin(async move {
            let addresses = found.await.map_err(|reason| io::Error::other(&*reason))?;
            let addresses: Addrs = Box::new(addresses.iter().copied().collect::<Vec<_>>().into_iter());
            Ok(addresses)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    use super::*;

    /// Look-ups of names with "silent" in them end when the sender is dropped; gives how many there were.
    fn names(are_told: bool) -> (Names, mpsc::Sender<()>, Arc<AtomicUsize>) {
        let (end, is_over) = mpsc::channel::<()>();
        let (is_over, count) = (Mutex::new(is_over), Arc::new(AtomicUsize::new(0)));
        let counted = count.clone();
        let look_up: Arc<LookUp> = Arc::new(move |name: &str| {
            counted.fetch_add(1, Ordering::Relaxed);
            if name.contains("silent") {
                let _ = is_over.lock().unwrap_or_else(PoisonError::into_inner).recv();
                return Err(io::Error::other("nobody knows"));
            }
            Ok(vec![SocketAddr::from(([192, 0, 2, 1], 0))])
        });
        let names = Names::new(look_up, are_told);
        (names, end, count)
    }

    #[test]
    fn silent_name_servers_take_no_thread_from_anybody() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .max_blocking_threads(1)
            .build()
            .unwrap();
        let (names, end, count) = names(false);
        runtime.block_on(async {
            let silent: Vec<Pending> = (0..AT_ONCE - 1)
                .map(|number| names.addresses(format!("silent{number}"), None))
                .collect();
            let again: Vec<Pending> = (0..100)
                .map(|_| names.addresses("silent0".to_owned(), None))
                .collect();
            tokio::task::spawn_blocking(|| ()).await.unwrap();
            assert!(names.addresses("other".to_owned(), None).await.is_ok());
            assert!(names.addresses("other".to_owned(), None).await.is_ok());
            let last = names.addresses("silent".to_owned(), None);
            let refused = names.addresses("one-more".to_owned(), None).await;
            assert!(refused.is_err_and(|reason| reason.contains("silent")));
            drop(end);
            for found in silent.into_iter().chain(again).chain([last]) {
                assert!(found.await.is_err());
            }
        });
        // Each silent name once, and "other" twice: it was known only while it was looked up.
        assert_eq!(count.load(Ordering::Relaxed), AT_ONCE + 2);
    }

    #[test]
    fn one_registry_holds_up_no_other() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (names, end, count) = names(true);
        let ask = |name: &str, namer: &str| names.addresses(name.to_owned(), Some(namer.into()));
        runtime.block_on(async {
            let silent: Vec<Pending> = (0..OF_ONE)
                .map(|number| ask(&format!("silent{number}"), "hostile"))
                .collect();
            let refused = ask("storage", "hostile").await;
            assert!(refused.is_err_and(|reason| reason.contains("same registry")));
            let shared = ask("silent0", "hostile");
            assert!(ask("storage", "other").await.is_ok());
            drop(end);
            for found in silent.into_iter().chain([shared]) {
                assert!(found.await.is_err());
            }
            assert!(ask("storage", "hostile").await.is_ok());
        });
        assert_eq!(count.load(Ordering::Relaxed), OF_ONE + 2);
    }
}
