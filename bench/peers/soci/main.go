// Command peer-soci is made of the parts of soci-snapshotter that the Go proxy offers: its snapshotter and its index
// builder. Its own commands are a module that refers to its neighbours by path, which `go install` refuses.
//
//	peer-soci serve ROOT SOCKET REGISTRY   the snapshotter, in its default configuration; REGISTRY speaks plain HTTP
//	peer-soci convert ROOT FROM TO         an image that containerd has, with an index bound to it (version 2 of SOCI)
//	peer-soci version                      what it is made of
//
// containerd is found by CONTAINERD_ADDRESS and CONTAINERD_NAMESPACE.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"syscall"

	"github.com/awslabs/soci-snapshotter/config"
	"github.com/awslabs/soci-snapshotter/fs"
	"github.com/awslabs/soci-snapshotter/metadata"
	"github.com/awslabs/soci-snapshotter/service"
	"github.com/awslabs/soci-snapshotter/soci"
	"github.com/awslabs/soci-snapshotter/soci/store"
	"github.com/awslabs/soci-snapshotter/ztoc"
	"github.com/containerd/containerd"
	snapshotsapi "github.com/containerd/containerd/api/services/snapshots/v1"
	"github.com/containerd/containerd/contrib/snapshotservice"
	"github.com/containerd/containerd/images"
	"github.com/containerd/containerd/namespaces"
	"github.com/containerd/platforms"
	bolt "go.etcd.io/bbolt"
	"google.golang.org/grpc"
)

const module = "github.com/awslabs/soci-snapshotter"

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "peer-soci:", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	switch {
	case len(arguments) == 4 && arguments[0] == "serve":
		return serve(arguments[1], arguments[2], arguments[3])
	case len(arguments) == 4 && arguments[0] == "convert":
		return convert(arguments[1], arguments[2], arguments[3])
	case len(arguments) == 1 && arguments[0] == "version":
		return version()
	}
	return errors.New("serve ROOT SOCKET REGISTRY, convert ROOT FROM TO, or version")
}

func version() error {
	information, _ := debug.ReadBuildInfo()
	for _, part := range information.Deps {
		if part.Path == module {
			fmt.Println(part.Version)
			return nil
		}
	}
	return errors.New("built without " + module)
}

// serve runs until a signal, and then takes its mounts down.
func serve(root, socket, registry string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	settings := config.NewConfig()
	settings.ResolverConfig.Host = map[string]config.HostConfig{
		registry: {Mirrors: []config.MirrorConfig{{Host: "http://" + registry, Insecure: true}}},
	}
	// It asks for layers without an index by TLS, whatever the registry speaks, and leaves them to containerd when that fails:
	// at once, and not after half a minute.
	settings.RetryableHTTPClientConfig.MaxRetries = 0
	// It gets its indexes from the content store of the containerd that it serves.
	settings.ContentStoreConfig.ContainerdAddress = os.Getenv("CONTAINERD_ADDRESS")
	// The kind of database in which its own program keeps layers' metadata.
	options := bolt.Options{NoFreelistSync: true, InitialMmapSize: 64 << 20, FreelistType: bolt.FreelistMapType}
	database, err := bolt.Open(filepath.Join(root, "metadata.db"), 0o600, &options)
	if err != nil {
		return err
	}
	read := func(layer *io.SectionReader, contents ztoc.TOC, options ...metadata.Option) (metadata.Reader, error) {
		return metadata.NewReader(database, layer, contents, options...)
	}
	snapshotter, err := service.NewSociSnapshotterService(ctx, root, &settings.ServiceConfig,
		service.WithFilesystemOptions(fs.WithMetadataStore(read)))
	if err != nil {
		return err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(inNamespace))
	snapshotsapi.RegisterSnapshotsServer(server, snapshotservice.FromSnapshotter(snapshotter))
	go func() {
		<-ctx.Done()
		server.Stop()
	}()
	if err := server.Serve(listener); err != nil && ctx.Err() == nil {
		return err
	}
	return snapshotter.Close()
}

// inNamespace hands on the namespace of a call to the calls of containerd that it leads to.
func inNamespace(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	if namespace, ok := namespaces.Namespace(ctx); ok {
		ctx = namespaces.WithNamespace(ctx, namespace)
	}
	return handle(ctx, request)
}

func convert(root, from, to string) error {
	client, err := containerd.New(os.Getenv("CONTAINERD_ADDRESS"))
	if err != nil {
		return err
	}
	defer client.Close()
	ctx := namespaces.WithNamespace(context.Background(), os.Getenv("CONTAINERD_NAMESPACE"))
	image, err := client.ImageService().Get(ctx, from)
	if err != nil {
		return err
	}
	blobs, err := store.NewContentStore(
		store.WithType(config.ContainerdContentStoreType),
		store.WithContainerdAddress(os.Getenv("CONTAINERD_ADDRESS")),
	)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(root, 0o700); err != nil {
		return err
	}
	artifacts, err := soci.NewDB(filepath.Join(root, "artifacts.db"))
	if err != nil {
		return err
	}
	builder, err := soci.NewIndexBuilder(client.ContentStore(), blobs, soci.WithArtifactsDb(artifacts))
	if err != nil {
		return err
	}
	batch, done, err := blobs.BatchOpen(ctx)
	if err != nil {
		return err
	}
	defer done(ctx)
	converted, err := builder.Convert(batch, image,
		soci.ConvertWithPlatforms(platforms.DefaultSpec()), soci.ConvertWithNoGarbageCollectionLabels())
	if err != nil {
		return err
	}
	_, err = client.ImageService().Create(ctx, images.Image{Name: to, Target: *converted})
	return err
}
