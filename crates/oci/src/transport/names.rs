//! Names of hosts to addresses, apart from everything else that blocks.
//!
//! The system's resolver blocks its thread, for half a minute and more if a name server is silent, and cannot be told to
//! stop. So look-ups have threads of their own, as many as are under way: pages of other images are decoded meanwhile. A
//! name is looked up once at a time, however many requests wait for it, and what a host can be asked at once is limited.
//!
//! Names that users gave and names that registries gave do not stand in each other's way, and no registry has more than its share of
//! the latter: one that sends each request to another silent name holds up itself. Users' names of one domain have a share, too, since
//! one silent server answers for all of them. When all places are taken all the same, a name that was found before leads where it led
//! then, so that running containers go on.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::sync::oneshot;
use xebec_kernel::resolver::{self, LookUpError};

/// Look-ups under way at most, in this process. Real hosts have a few registries, each of which redirects to one or two hosts.
const AT_ONCE: usize = 64;
/// Of these, such as one registry gave: it needs no more hosts at a time than it redirects to, and a token server.
const OF_ONE: usize = 8;
/// Of these, such of one domain as users gave: as many registries of one provider as a host may begin to use at the same moment.
const OF_DOMAIN: usize = 16;
/// Names of which it is remembered where they led, with some tens of bytes each.
const REMEMBERED: usize = 256;
/// Stack of such a thread: the resolvers of C libraries take some tens of KiB, and the daemon's memory is locked.
const STACK: usize = 256 << 10;

/// The look-up of a name, which blocks its thread.
type LookUp = dyn Fn(&str) -> Result<Vec<SocketAddr>, LookUpError> + Send + Sync;
/// The result of a look-up, which all requests that wait for the name share.
type Found = Result<Arc<[SocketAddr]>, NoAddress>;
type Pending = Shared<BoxFuture<'static, Found>>;
/// The registry for which a look-up began, if that is known.
type Namer = Option<Arc<str>>;

tokio::task_local! {
    /// The registry for which a request is made, which may have named the host that is asked.
    pub(crate) static NAMER: Arc<str>;
}

/// Why a name has no addresses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoAddress {
    /// There is no host of this name.
    #[error("there is no host named {0}")]
    Unknown(String),
    /// Nobody could say.
    #[error("{0}")]
    Failed(Arc<str>),
}

impl NoAddress {
    fn of(name: &str, error: LookUpError) -> Self {
        match error {
            LookUpError::Unknown => Self::Unknown(name.to_owned()),
            LookUpError::Failed(reason) => Self::Failed(format!("look up {name}: {reason}").into()),
        }
    }
}

/// Look-ups of names of one origin.
pub(crate) struct Names {
    look_up: Arc<LookUp>,
    table: Arc<Mutex<Table>>,
    /// Whether registries gave them.
    are_told: bool,
}

#[derive(Default)]
struct Table {
    /// Under way, each with the registry for which it began.
    pending: HashMap<String, (Pending, Namer)>,
    /// Where users' names led when they were last looked up.
    last: HashMap<String, Arc<[SocketAddr]>>,
}

impl Table {
    /// Why another name cannot be looked up now.
    fn refusal(&self, name: &str, namer: &Namer, are_told: bool) -> Option<String> {
        let count = |is_alike: &dyn Fn(&str, &Namer) -> bool| {
            let alike = self.pending.iter().filter(|(other, (_, of))| is_alike(other, of));
            alike.count()
        };
        let (limit, whose) = if self.pending.len() >= AT_ONCE {
            (AT_ONCE, String::new())
        } else if are_told && count(&|_, of| of == namer) >= OF_ONE {
            (OF_ONE, " of the same registry".to_owned())
        } else if !are_told && count(&|other, _| domain(other) == domain(name)) >= OF_DOMAIN {
            (OF_DOMAIN, format!(" of {}", domain(name)))
        } else {
            return None;
        };
        Some(format!(
            "{limit} other names{whose} are being looked up; is the name server silent?"
        ))
    }

    fn remember(&mut self, name: &str, found: &Arc<[SocketAddr]>) {
        if self.last.len() >= REMEMBERED && !self.last.contains_key(name) {
            // Any: a registry that fills it with names cannot choose which one goes.
            let other = self.last.keys().next().cloned();
            other.map(|other| self.last.remove(&other));
        }
        self.last.insert(name.to_owned(), found.clone());
    }
}

/// The last two parts of a name, for which one server answers as a rule.
fn domain(name: &str) -> &str {
    let name = name.trim_end_matches('.');
    match name.rmatch_indices('.').nth(1) {
        Some((at, _)) => name.get(at + 1..).unwrap_or(name),
        None => name,
    }
}

fn by_system(name: &str) -> Result<Vec<SocketAddr>, LookUpError> {
    let addresses = resolver::look_up(name)?;
    let addresses = addresses
        .into_iter()
        .map(|address| SocketAddr::from((address, 0)));
    Ok(addresses.collect())
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
            table: Arc::default(),
            are_told,
        }
    }

    /// The addresses of `name`, by a look-up that is under way or by a new one, which `namer` needs.
    fn addresses(&self, name: String, namer: Namer) -> Pending {
        let mut known = self.table.lock();
        if let Some((found, _)) = known.pending.get(&name) {
            return found.clone();
        }
        if let Some(reason) = known.refusal(&name, &namer, self.are_told) {
            let last = known
                .last
                .get(&name)
                .cloned()
                .ok_or_else(|| NoAddress::Failed(reason.into()));
            return std::future::ready(last).boxed().shared();
        }
        let (tell, told) = oneshot::channel();
        let (look_up, table, looked_up) = (self.look_up.clone(), self.table.clone(), name.clone());
        let are_told = self.are_told;
        let work = move || {
            let found = look_up(&looked_up).map(Arc::from);
            let mut table = table.lock();
            // First out of the table, so that a call that comes after this answer gets a newer one.
            table.pending.remove(&looked_up);
            if let (Ok(found), false) = (&found, are_told) {
                table.remember(&looked_up, found);
            }
            drop(table);
            let _ = tell.send(found.map_err(|error| NoAddress::of(&looked_up, error)));
        };
        let thread = std::thread::Builder::new()
            .name("look-up".to_owned())
            .stack_size(STACK);
        if let Err(error) = thread.spawn(work) {
            let reason = format!("cannot start a thread: {error}");
            return std::future::ready(Err(NoAddress::Failed(reason.into())))
                .boxed()
                .shared();
        }
        let found: Pending = told
            .map(|found| found.unwrap_or_else(|_| Err(NoAddress::Failed("the look-up died".into()))))
            .boxed()
            .shared();
        known.pending.insert(name, (found.clone(), namer));
        found
    }
}

impl Resolve for Names {
    fn resolve(&self, name: Name) -> Resolving {
        let namer = NAMER.try_with(Arc::clone).ok();
        let found = self.addresses(name.as_str().to_owned(), namer);
        Box::pin(async move {
            let addresses = found.await?;
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
                let _ = is_over.lock().recv();
                return Err(LookUpError::Failed("nobody knows".to_owned()));
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
            assert!(refused.is_err_and(|reason| reason.to_string().contains("silent")));
            drop(end);
            for found in silent.into_iter().chain(again).chain([last]) {
                assert!(found.await.is_err());
            }
        });
        // Each silent name once, and "other" twice: it was known only while it was looked up.
        assert_eq!(count.load(Ordering::Relaxed), AT_ONCE + 2);
    }

    /// Names of users: those of one domain have a share, and what was found before is there when all places are taken.
    #[test]
    fn one_domain_holds_up_no_other() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (names, end, _) = names(false);
        let ask = |name: &str| names.addresses(name.to_owned(), Some("registry".into()));
        runtime.block_on(async {
            let before = ask("registry.example").await.unwrap();
            let mut silent: Vec<Pending> = (0..OF_DOMAIN)
                .map(|number| ask(&format!("silent{number}.of.one.example")))
                .collect();
            let refused = ask("silent.too.one.example.").await;
            assert!(refused.is_err_and(|reason| reason.to_string().contains("of one.example")));
            assert!(ask("registry.other.example").await.is_ok());
            let others = OF_DOMAIN..AT_ONCE;
            silent.extend(others.map(|number| ask(&format!("silent.number{number}.example"))));
            assert_eq!(ask("registry.example").await.unwrap(), before);
            assert!(ask("never-asked.example").await.is_err());
            drop(end);
            for found in silent {
                assert!(found.await.is_err());
            }
            assert!(ask("never-asked.example").await.is_ok());
        });
        for number in 0..2 * REMEMBERED {
            let found = [SocketAddr::from(([192, 0, 2, 1], 0))].into();
            let mut table = names.table.lock();
            table.remember(&number.to_string(), &found);
            assert!(table.last.len() <= REMEMBERED);
        }
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
            assert!(refused.is_err_and(|reason| reason.to_string().contains("same registry")));
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
