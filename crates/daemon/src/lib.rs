//! The worker: answers events, serves the command line, mounts views; and what knows containerd.
//!
//! It runs under the keeper, which holds the fanotify group, the journal and the listening socket, hands them down by number, and
//! starts the next worker when this one dies. So everything that must outlive a worker is in files: layers in the cache, views in
//! the run directory. A new worker reads them back before it reads events.
//!
//! * [`worker`]: its start, and what it waits for.
//! * [`services`]: what all of these share. [`requests`]: what the command line asks for, and who does it; [`server`]: the socket.
//!   `mounts`, `preparation`: an image is prepared and mounted for somebody. `view_lease`: how a request comes by a view; `completion`:
//!   layers that are brought in whole, and proven; `removal`: forgetting and pinning images; `status`: what the daemon tells of itself;
//!   [`explain`]: what readers waited for; `ending`: when it may end.
//! * [`starts`]: what services ask for while they start, told in `start_facts`, kept by `learning`. `loading`: runtime images on their
//!   way; `populate`: pages that came, in the page cache of the view; `integrity_check`: whether those that earlier recordings brought
//!   may be used.
//! * [`quota`]: how large the cache may be; `eviction`: how a layer goes without a reader noticing.
//! * [`upkeep`]: what is done for the cache in the background; `containers`: after containers whose command was killed.
//! * [`snapshots`]: containerd's snapshots; [`logins`]: by what the kubelet pulled with; [`ctr_pull`]: a lazy pull by `ctr`; [`relay`]:
//!   between containerd and Docker.
//! * [`metrics`]: for Prometheus. [`failpoints`]: deaths on purpose, for tests.
//!
//! Promises: a request is answered by this worker or the next; nothing that is read is evicted; an error names the thing and says
//! what to do.
//!
//! May use every crate of the host side; only `install` and `cli` use it.

mod background;
mod completion;
mod containers;
pub mod ctr_pull;
mod ending;
mod eviction;
mod eviction_locks;
pub mod explain;
pub mod failpoints;
mod held_view;
mod integrity_check;
mod learning;
mod loaded_images;
mod loading;
pub mod logins;
pub mod metrics;
mod mounts;
mod openmetrics;
mod order;
mod populate;
mod preparation;
pub mod quota;
pub mod relay;
mod removal;
pub mod requests;
pub mod server;
pub mod services;
mod snapshot_service;
pub mod snapshots;
mod start_counts;
mod start_facts;
mod start_table;
pub mod starts;
mod status;
pub mod upkeep;
mod view_lease;
pub mod worker;
