//! The worker process: answers events, serves the command line and containerd, mounts views.
//!
//! It runs under the keeper, which holds the fanotify group, the journal and the listening socket, hands them down by number, and
//! starts the next worker when this one dies. So everything that must outlive a worker is in files: layers in the cache, views in
//! the run directory. A new worker reads them back before it reads events.
//!
//! * [`worker`]: the start of the process, and its loop. `services`: makes the services, each with only those that it uses.
//! * `server`: the command line's socket; `requests`: passes each request on. `mounts`, `preparation`: prepare and mount an image
//!   for a holder; `view_lease`: takes or builds the view of a request; `pulls`: brings images here without a view; `completion`:
//!   fetches whole layers; `proofs`: proves them; `removal`: removes and pins images; `ending`: when the daemon may end;
//!   `stopping`: gives up the work that requests wait for.
//! * `runtime_images`: loads runtime images, `load_ahead` with a pull, `prefetch` before a start: for a command, and
//!   `prefetch_list` for the images that the settings list; `injections`: into which layers their pages may go;
//!   `prefill`: prefills the page cache of a view with them; `integrity_check`: compares unverified pages of earlier recordings
//!   before a stricter reader uses the layer; `corrections`: the alarm when they were wrong.
//! * `starts`: watches the reads of services while they start; `start_reports`, `start_facts`: report it; `learning`: the profile
//!   of it; `view_read_ahead`: how far the kernel reads ahead meanwhile.
//! * `quota`: how large the cache may be; `eviction`: removes a layer's data without harm to readers; `building`: tells them that a
//!   view is on its way; `view_cleanup`: gives up the resources of views that went.
//! * `upkeep`: work on the cache in the background; `durability`: brings data to the disk later; `background`: threads for work
//!   that blocks; `containers`: cleans up after containers whose command was killed.
//! * `snapshots`: containerd's snapshots.
//! * `status`: the daemon's report of itself; [`explain`]: why readers waited; `history_writer`: writes that down for later;
//!   `container_runs`: which containers run, on which images; `metrics`, `metrics_server`: for Prometheus.
//!   [`failpoints`]: where tests end the process on purpose.
//!
//! Promises: a request is answered by this worker or the next; nothing that is read is evicted; an error names the thing and says
//! what to do.
//!
//! May use every crate of the host side but `install`. Only `cli` uses it.

mod background;
mod building;
mod completion;
mod container_runs;
mod containers;
mod corrections;
mod durability;
mod ending;
mod eviction;
pub mod explain;
pub mod failpoints;
mod fill_failure;
mod held_view;
mod history_writer;
mod injections;
mod integrity_check;
mod learning;
mod load_ahead;
mod loaded_images;
mod metrics;
mod metrics_server;
mod mounts;
mod openmetrics;
mod order;
mod prefetch;
mod prefetch_list;
mod prefetch_settling;
mod prefetch_watch;
mod prefill;
mod preparation;
mod proofs;
mod pull_progress;
mod pulls;
mod quota;
mod removal;
mod requests;
mod runtime_images;
mod server;
mod services;
mod snapshot_binds;
mod snapshot_service;
mod snapshots;
mod start_counts;
mod start_facts;
pub mod start_reports;
mod start_table;
mod starts;
mod status;
mod stopping;
mod upkeep;
mod view_cleanup;
mod view_lease;
mod view_read_ahead;
pub mod worker;
