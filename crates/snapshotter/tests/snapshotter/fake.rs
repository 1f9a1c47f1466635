//! A host whose images are made up, and a client.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use prost::Message;
use redb::ReadableTable;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Notify, Semaphore, watch};
use tonic::body::Body;
use tonic::{Code, Request, Streaming};
use tonic_prost::ProstCodec;
use xebec_snapshotter::api::{
    Info, Kind, LONGEST_MESSAGE, ListRequest, ListResponse, MountsResponse, SERVICE,
};
use xebec_snapshotter::containerd::owners::{ContainerImage, Owners};
use xebec_snapshotter::image_service::ImageService;
use xebec_snapshotter::lazy::{LayerOffer, NotLazy, Reason, Shown, Verdict};
use xebec_snapshotter::record::{LazyLayer, Record};
use xebec_snapshotter::server::{Opened, serve};
use xebec_snapshotter::usage::Usage;
use xebec_snapshotter::{Binder, ErrorKind, Figures, LazyImages, SnapshotError, Snapshotter};

/// Labels as containerd sets them for a layer of an image.
pub(crate) fn image_labels(image: &str, depth: usize) -> HashMap<String, String> {
    let labels = [
        ("containerd.io/snapshot.ref", format!("chain-{image}-{depth}")),
        (
            "containerd.io/snapshot/cri.image-ref",
            format!("registry/{image}:1"),
        ),
        (
            "containerd.io/snapshot/cri.layer-digest",
            format!("layer-{image}-{depth}"),
        ),
        (
            "containerd.io/snapshot/cri.manifest-digest",
            format!("manifest-{image}"),
        ),
    ];
    labels
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// Images by name: `lazy` is, of `half` the first layer is, `listed` is by another manifest, the view of `broken` cannot be shown, and the
/// registry of `hung` does not answer before it is told to.
struct Images {
    views: PathBuf,
    held: Mutex<BTreeSet<String>>,
    offers: Mutex<usize>,
    /// The names by which views were asked for.
    shown: Mutex<Vec<String>>,
    /// The arguments of all calls of `let_go`.
    let_go: Mutex<Vec<Shown>>,
    /// How often something cannot go yet.
    in_use: AtomicUsize,
    /// Held by a test that lets it take a while.
    letting_go: Arc<tokio::sync::Mutex<()>>,
    is_asked: Arc<Notify>,
    answer: Arc<Notify>,
    answers: Semaphore,
}

/// Notes a bind mount as a symbolic link to the directory that is bound.
impl Binder for Images {
    fn bind(&self, from: &Path, at: &Path) -> Result<(), SnapshotError> {
        if from.to_string_lossy().contains("unbindable") {
            return Err(SnapshotError::new(ErrorKind::Internal, "it cannot be mounted"));
        }
        let bound = std::fs::read_link(at.with_extension("bound"));
        if bound.is_ok_and(|bound| bound == from) {
            return Ok(());
        }
        self.unbind(at);
        std::os::unix::fs::symlink(from, at.with_extension("bound")).unwrap();
        Ok(())
    }

    fn unbind(&self, at: &Path) {
        let _ = std::fs::remove_file(at.with_extension("bound"));
    }
}

impl LazyImages for Images {
    async fn admit(&self, offer: LayerOffer) -> Verdict {
        *self.offers.lock() += 1;
        tokio::task::yield_now().await;
        if offer.reference.contains("hung") {
            self.answers.acquire().await.unwrap().forget();
        }
        if offer.reference.contains("unreachable") {
            return Verdict::NotLazy(NotLazy {
                reason: Reason::Unreachable,
                detail: "its registry does not answer".to_owned(),
                base: None,
            });
        }
        if offer.reference.ends_with("@distrusted") {
            return Verdict::NotLazy(NotLazy {
                reason: Reason::NotTrusted,
                detail: "only its registry vouches for its index".to_owned(),
                base: None,
            });
        }
        match offer.reference.contains("half") && offer.depth > 1 {
            true => Verdict::NotLazy(NotLazy {
                reason: Reason::NoIndex,
                detail: "it has no index".to_owned(),
                base: offer.manifest,
            }),
            false => Verdict::Lazy {
                manifest: match offer.reference.contains("listed") {
                    true => "manifest-of-a-list".to_owned(),
                    false => offer.manifest.unwrap(),
                },
                is_whole: offer.depth == 3,
            },
        }
    }

    async fn view(&self, key: &str, layer: &LazyLayer, _is_run: bool) -> Result<PathBuf, SnapshotError> {
        if layer.reference.contains("broken") {
            return Err(SnapshotError::new(ErrorKind::Unavailable, "nobody answers"));
        }
        let path = self.views.join(format!("{}-{}", layer.manifest, layer.depth));
        self.shown.lock().push(layer.reference.clone());
        std::fs::create_dir_all(&path).unwrap();
        self.held.lock().insert(key.to_owned());
        Ok(path)
    }

    async fn own(
        &self,
        image: &ContainerImage,
        chain: &str,
        layer: &LazyLayer,
    ) -> Result<LazyLayer, SnapshotError> {
        assert!(chain.starts_with("chain-"), "{chain}");
        match image.name.as_str() {
            name if name.ends_with("@unproven") => {
                let message = format!("{name} on layers of {}", layer.reference);
                Err(SnapshotError::new(ErrorKind::FailedPrecondition, message))
            }
            name if name.ends_with("@slow") => {
                self.is_asked.notify_one();
                self.answer.notified().await;
                Ok(layer.clone())
            }
            name => Ok(LazyLayer {
                reference: name.to_owned(),
                ..layer.clone()
            }),
        }
    }

    async fn holds_for_all(&self, _chain: &str, layer: &LazyLayer) -> bool {
        layer.reference.contains("signed")
    }

    async fn release(&self, key: &str) -> Result<(), SnapshotError> {
        if key.ends_with("stuck") {
            return Err(SnapshotError::new(ErrorKind::Internal, "it is not given back"));
        }
        self.held.lock().remove(key);
        Ok(())
    }

    fn held(&self) -> Vec<String> {
        self.held.lock().iter().cloned().collect()
    }

    async fn let_go(&self, shown: Shown) -> bool {
        self.let_go.lock().push(shown);
        drop(self.letting_go.lock().await);
        self.in_use
            .fetch_update(Relaxed, Relaxed, |times| times.checked_sub(1))
            .is_err()
    }

    fn usage(&self, _layer: &LazyLayer) -> Usage {
        Usage {
            bytes: 4096,
            inodes: 0,
        }
    }
}

type Serving = (watch::Sender<bool>, tokio::task::JoinHandle<()>);

/// A host with the service running.
pub(crate) struct Host {
    directory: tempfile::TempDir,
    images: Arc<Images>,
    snapshotter: Option<Arc<Snapshotter<Images>>>,
    serving: Option<Serving>,
    opened: Option<watch::Sender<Opened<Images>>>,
    /// Passed on from the next start on.
    pub(crate) image_service: Option<Arc<ImageService>>,
    /// Asked from the next start on.
    pub(crate) owners: Option<Owners>,
    /// Told when somebody asks about the image that is slow.
    pub(crate) is_asked: Arc<Notify>,
    /// Told by a test when that answer may come.
    pub(crate) answer: Arc<Notify>,
}

impl Host {
    pub(crate) async fn start() -> Host {
        let directory = tempfile::tempdir().unwrap();
        let (is_asked, answer) = <(Arc<Notify>, Arc<Notify>)>::default();
        let images = Arc::new(Images {
            views: directory.path().join("views"),
            held: Mutex::default(),
            offers: Mutex::default(),
            shown: Mutex::default(),
            let_go: Mutex::default(),
            in_use: AtomicUsize::default(),
            letting_go: Arc::default(),
            is_asked: is_asked.clone(),
            answer: answer.clone(),
            answers: Semaphore::new(0),
        });
        let mut host = Host {
            directory,
            images,
            snapshotter: None,
            serving: None,
            opened: None,
            image_service: None,
            owners: None,
            is_asked,
            answer,
        };
        host.restart().await;
        host
    }

    pub(crate) async fn restart(&mut self) {
        self.listen();
        self.open().await;
    }

    /// Serves before there is something to serve.
    pub(crate) fn listen(&mut self) {
        let _ = std::fs::remove_file(self.socket());
        let listener = UnixListener::bind(self.socket()).unwrap();
        let (stop, stopped) = watch::channel(false);
        let (opened, opening) = watch::channel(Opened::Opening);
        let images = self.image_service.clone();
        let task = tokio::spawn(serve(listener, opening, images, stopped));
        self.opened = Some(opened);
        self.serving = Some((stop, task));
    }

    pub(crate) async fn open(&mut self) {
        let snapshotter = Arc::new(
            Snapshotter::open(&self.root(), self.images.clone())
                .unwrap()
                .asking(self.owners.clone()),
        );
        snapshotter.reconcile().await.unwrap();
        let opened = self.opened.as_ref().unwrap();
        opened.send_replace(Opened::Open(snapshotter.clone()));
        self.snapshotter = Some(snapshotter);
    }

    pub(crate) fn fail_to_open(&self, problem: &str) {
        let opened = self.opened.as_ref().unwrap();
        opened.send_replace(Opened::Failed(problem.to_owned()));
    }

    pub(crate) async fn stop(&mut self) {
        let (stop, task) = self.serving.take().unwrap();
        stop.send(true).unwrap();
        task.await.unwrap();
        self.opened = None;
        self.snapshotter = None;
    }

    /// Has so many layers that are lazy, as if they had been pulled; connections end. Through the service it would take minutes.
    pub(crate) async fn fill(&mut self, many: usize) {
        self.stop().await;
        let database = redb::Database::open(self.root().join("snapshots.redb")).unwrap();
        let change = database.begin_write().unwrap();
        {
            let mut numbers = change
                .open_table(redb::TableDefinition::<&str, u64>::new("numbers"))
                .unwrap();
            let first = numbers.get("next-id").unwrap().map_or(1, |next| next.value());
            numbers.insert("next-id", first + many as u64).unwrap();
            let mut snapshots = change
                .open_table(redb::TableDefinition::<&str, &[u8]>::new("snapshots"))
                .unwrap();
            for (id, number) in (first..).zip(0..many) {
                let name = format!("many-{number:06}");
                let record = Record {
                    id,
                    kind: Kind::Committed.into(),
                    labels: image_labels(&name, 1),
                    lazy: Some(LazyLayer {
                        manifest: format!("manifest-{name}"),
                        depth: 1,
                        ..LazyLayer::default()
                    }),
                    ..Record::default()
                };
                snapshots
                    .insert(name.as_str(), record.encode_to_vec().as_slice())
                    .unwrap();
            }
        }
        change.commit().unwrap();
        drop(database);
        self.restart().await;
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.directory.path().join("root")
    }

    pub(crate) fn view(&self, image: &str, depth: usize) -> PathBuf {
        self.images.views.join(format!("manifest-{image}-{depth}"))
    }

    pub(crate) fn held(&self) -> Vec<String> {
        self.images.held()
    }

    pub(crate) fn hold(&self, key: &str) {
        self.images.held.lock().insert(key.to_owned());
    }

    pub(crate) fn shown(&self) -> Vec<String> {
        self.images.shown.lock().clone()
    }

    /// The next so many times, something is in use and cannot go.
    pub(crate) fn use_when_let_go(&self, times: usize) {
        self.images.in_use.store(times, Relaxed);
    }

    /// The arguments of the calls of `let_go` since this was asked last.
    pub(crate) fn let_go(&self) -> Vec<Shown> {
        std::mem::take(&mut *self.images.let_go.lock())
    }

    /// Nothing is let go before the guard is dropped.
    pub(crate) async fn hold_letting_go(&self) -> tokio::sync::OwnedMutexGuard<()> {
        self.images.letting_go.clone().lock_owned().await
    }

    /// The argument of the last call of `let_go`, once there is one.
    pub(crate) async fn wait_for_let_go(&self) -> Shown {
        loop {
            if let Some(shown) = self.let_go().pop() {
                return shown;
            }
            tokio::task::yield_now().await;
        }
    }

    pub(crate) async fn wait_for_offers(&self, count: usize) {
        while self.offers() < count {
            tokio::task::yield_now().await;
        }
    }

    pub(crate) fn offers(&self) -> usize {
        *self.images.offers.lock()
    }

    /// Lets the registry that hangs answer so many times.
    pub(crate) fn answer_hung(&self, times: usize) {
        self.images.answers.add_permits(times);
    }

    pub(crate) fn figures(&self) -> Figures {
        self.snapshotter.as_ref().unwrap().figures().unwrap()
    }

    /// How many directories there are besides the store.
    pub(crate) fn directories(&self) -> usize {
        let count = |name: &str| std::fs::read_dir(self.root().join(name)).unwrap().count();
        count("u") + count("w") + count("out")
    }

    pub(crate) fn lower(&self, made: &MountsResponse) -> Vec<PathBuf> {
        let options = &made.mounts[0].options;
        let lower = options.iter().find_map(|option| option.strip_prefix("lowerdir="));
        lower.unwrap().split(':').map(PathBuf::from).collect()
    }

    pub(crate) async fn connect(&self) -> Client {
        Client::connect(&self.socket()).await
    }
}

/// How many bytes of an answer a client takes before it reads them, as the clients of containerd do: hyper's own would take two
/// megabytes, a long list whole.
const TAKEN_AHEAD: u32 = 65_535;

/// A client of gRPC over one connection.
#[derive(Clone)]
pub(crate) struct Client {
    connection: hyper::client::conn::http2::SendRequest<Body>,
    /// Sent with each call.
    pub(crate) header: Option<(&'static str, &'static str)>,
}

impl Client {
    async fn connect(socket: &Path) -> Client {
        let stream = UnixStream::connect(socket).await.unwrap();
        let (connection, driver) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(TAKEN_AHEAD)
            .handshake(TokioIo::new(stream))
            .await
            .unwrap();
        tokio::spawn(driver);
        Client {
            connection,
            header: None,
        }
    }

    pub(crate) async fn call<Q, A>(&mut self, method: &str, request: Q) -> Result<A, Code>
    where
        Q: Message + Default + 'static,
        A: Message + Default + 'static,
    {
        self.call_of(SERVICE, method, request).await
    }

    /// A call of another service at the same socket.
    pub(crate) async fn call_of<Q, A>(&mut self, service: &str, method: &str, request: Q) -> Result<A, Code>
    where
        Q: Message + Default + 'static,
        A: Message + Default + 'static,
    {
        let mut grpc = self.grpc();
        let path = format!("/{service}/{method}").parse().unwrap();
        let codec = ProstCodec::<Q, A>::default();
        let mut request = Request::new(request);
        if let Some((name, value)) = self.header {
            request.metadata_mut().insert(name, value.parse().unwrap());
        }
        let answer = grpc.unary(request, path, codec).await;
        answer
            .map(|answer| answer.into_inner())
            .map_err(|status| status.code())
    }

    /// It takes what containerd does.
    fn grpc(&self) -> tonic::client::Grpc<Sender> {
        let grpc = tonic::client::Grpc::new(Sender(self.connection.clone()));
        grpc.max_decoding_message_size(LONGEST_MESSAGE)
    }

    pub(crate) async fn list(&mut self, filters: &[&str]) -> Result<Vec<Info>, Code> {
        let mut stream = self.list_slowly(filters).await?;
        let mut all = Vec::new();
        while let Some(block) = stream.message().await.map_err(|status| status.code())? {
            all.extend(block.info);
        }
        Ok(all)
    }

    /// The messages of a list, to be read one by one.
    pub(crate) async fn list_slowly(&mut self, filters: &[&str]) -> Result<Streaming<ListResponse>, Code> {
        let mut grpc = self.grpc();
        let request = ListRequest {
            filters: filters.iter().map(|filter| (*filter).to_owned()).collect(),
            ..ListRequest::default()
        };
        let path = format!("/{SERVICE}/List").parse().unwrap();
        let codec = ProstCodec::<ListRequest, ListResponse>::default();
        let answer = grpc.server_streaming(Request::new(request), path, codec).await;
        answer
            .map(|answer| answer.into_inner())
            .map_err(|status| status.code())
    }
}

#[derive(Clone)]
struct Sender(hyper::client::conn::http2::SendRequest<Body>);

impl tonic::client::GrpcService<Body> for Sender {
    type ResponseBody = hyper::body::Incoming;
    type Error = hyper::Error;
    type Future = std::pin::Pin<
        Box<dyn Future<Output = Result<hyper::Response<Self::ResponseBody>, hyper::Error>> + Send>,
    >;

    fn poll_ready(
        &mut self,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), hyper::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, mut request: hyper::Request<Body>) -> Self::Future {
        // HTTP/2 wants to know whom it talks to.
        let path = request.uri().path().to_owned();
        *request.uri_mut() = format!("http://localhost{path}").parse().unwrap();
        Box::pin(self.0.send_request(request))
    }
}
