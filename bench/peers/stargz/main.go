// Command peer-stargz is made of the parts of stargz-snapshotter that the Go proxy offers: its snapshotter, its analyzer and its
// converter. Its own commands are a module that refers to its neighbours by path, which `go install` refuses.
//
//	peer-stargz serve ROOT SOCKET REGISTRY   the snapshotter, in its default configuration; REGISTRY speaks plain HTTP
//	peer-stargz convert FROM TO SECONDS [ARGUMENT...]
//	                                         an image that containerd has, as eStargz; with the files that the image's
//	                                         service, started with these arguments, opens within SECONDS in front (0: as
//	                                         they come)
//	peer-stargz record FROM FILE SECONDS [ARGUMENT...]
//	                                         the files that would be in front, a line each, into FILE (bench/systems/nydus.py)
//	peer-stargz version                      what it is made of
//	peer-stargz fanotify DIRECTORY           used by convert and record, in a mount namespace
//
// containerd is found by CONTAINERD_ADDRESS and CONTAINERD_NAMESPACE.
package main

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	snapshotsapi "github.com/containerd/containerd/api/services/snapshots/v1"
	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/contrib/snapshotservice"
	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/images/converter"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/containerd/platforms"
	"github.com/containerd/stargz-snapshotter/analyzer"
	notifier "github.com/containerd/stargz-snapshotter/analyzer/fanotify/service"
	"github.com/containerd/stargz-snapshotter/estargz"
	"github.com/containerd/stargz-snapshotter/fs/config"
	estargzconvert "github.com/containerd/stargz-snapshotter/nativeconverter/estargz"
	"github.com/containerd/stargz-snapshotter/recorder"
	"github.com/containerd/stargz-snapshotter/service"
	"github.com/containerd/stargz-snapshotter/service/resolver"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	runtimespec "github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/grpc"
)

const module = "github.com/containerd/stargz-snapshotter"

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "peer-stargz:", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	switch {
	case len(arguments) == 4 && arguments[0] == "serve":
		return serve(arguments[1], arguments[2], arguments[3])
	case len(arguments) >= 4 && arguments[0] == "convert":
		return convert(arguments[1], arguments[2], arguments[3], arguments[4:])
	case len(arguments) >= 4 && arguments[0] == "record":
		return list(arguments[1], arguments[2], arguments[3], arguments[4:])
	case len(arguments) == 2 && arguments[0] == "fanotify":
		return notifier.Serve(arguments[1], os.Stdin, os.Stdout)
	case len(arguments) == 1 && arguments[0] == "version":
		return version()
	}
	return errors.New("serve ROOT SOCKET REGISTRY, convert FROM TO SECONDS [ARGUMENT...], " +
		"record FROM FILE SECONDS [ARGUMENT...], or version")
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
	// The values that its own program takes where a configuration file has none.
	settings := service.Config{
		Config: config.Config{
			DirectoryCacheConfig: config.DirectoryCacheConfig{Direct: true},
			FuseConfig:           config.FuseConfig{MergeBufferSize: 400 << 20, MergeWorkerCount: 10},
		},
		ResolverConfig: service.ResolverConfig(resolver.Config{
			Host: map[string]resolver.HostConfig{
				registry: {Mirrors: []resolver.MirrorConfig{{Host: registry, Insecure: true}}},
			},
		}),
	}
	snapshotter, err := service.NewStargzSnapshotterService(ctx, root, &settings)
	if err != nil {
		return err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
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

func convert(from, to, seconds string, arguments []string) error {
	return withImage(seconds, func(ctx context.Context, client *containerd.Client, period time.Duration) error {
		var files map[digest.Digest][]estargz.Option
		if period > 0 {
			entries, layers, err := record(ctx, client, from, arguments, period)
			if err != nil {
				return err
			}
			files, err = prioritized(entries, layers)
			if err != nil {
				return err
			}
		}
		// The level is that of `ctr-remote optimize`.
		layers := estargzconvert.LayerConvertWithLayerAndCommonOptsFunc(files, estargz.WithCompressionLevel(gzip.BestCompression))
		_, err := converter.Convert(ctx, client, to, from,
			converter.WithPlatform(platforms.DefaultStrict()), converter.WithDockerToOCI(true), converter.WithLayerConvertFunc(layers))
		return err
	})
}

// list writes the paths of the files that an image's service opens, in order.
func list(from, file, seconds string, arguments []string) error {
	return withImage(seconds, func(ctx context.Context, client *containerd.Client, period time.Duration) error {
		entries, _, err := record(ctx, client, from, arguments, period)
		if err != nil {
			return err
		}
		var paths strings.Builder
		for _, entry := range entries {
			fmt.Fprintln(&paths, path.Join("/", entry.Path))
		}
		return os.WriteFile(file, []byte(paths.String()), 0o600)
	})
}

// withImage calls work with a client of containerd, whose garbage is not collected meanwhile.
func withImage(seconds string, work func(context.Context, *containerd.Client, time.Duration) error) error {
	period, err := strconv.Atoi(seconds)
	if err != nil {
		return err
	}
	client, err := containerd.New(os.Getenv("CONTAINERD_ADDRESS"))
	if err != nil {
		return err
	}
	defer client.Close()
	ctx := namespaces.WithNamespace(context.Background(), os.Getenv("CONTAINERD_NAMESPACE"))
	ctx, done, err := client.WithLease(ctx)
	if err != nil {
		return err
	}
	defer done(ctx)
	return work(ctx, client, time.Duration(period)*time.Second)
}

// record starts the image's service on this host's network and gives which files were opened, in order, and the image's layers.
func record(
	ctx context.Context, client *containerd.Client, name string, arguments []string, period time.Duration,
) ([]recorder.Entry, []ocispec.Descriptor, error) {
	specification := func(image containerd.Image, root string) ([]oci.SpecOpts, func() error, error) {
		options := []oci.SpecOpts{
			oci.WithDefaultSpec(), oci.WithDefaultUnixDevices, oci.WithRootFSPath(root), oci.WithImageConfig(image),
			oci.WithHostNamespace(runtimespec.NetworkNamespace),
		}
		// In place of the image's entrypoint and command, as `ctr run` takes them.
		if len(arguments) > 0 {
			options = append(options, oci.WithProcessArgs(arguments...))
		}
		return options, func() error { return nil }, nil
	}
	recorded, err := analyzer.Analyze(ctx, client, name, analyzer.WithPeriod(period), analyzer.WithSpecOpts(specification))
	if err != nil {
		return nil, nil, err
	}
	image, err := client.ImageService().Get(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	store := client.ContentStore()
	manifest, err := images.Manifest(ctx, store, image.Target, platforms.DefaultStrict())
	if err != nil {
		return nil, nil, err
	}
	reader, err := store.ReaderAt(ctx, ocispec.Descriptor{Digest: recorded})
	if err != nil {
		return nil, nil, err
	}
	defer reader.Close()
	var entries []recorder.Entry
	for decoder := json.NewDecoder(content.NewReader(reader)); decoder.More(); {
		var entry recorder.Entry
		if err := decoder.Decode(&entry); err != nil {
			return nil, nil, err
		}
		entries = append(entries, entry)
	}
	if len(entries) == 0 {
		return nil, nil, errors.New("nothing was recorded")
	}
	return entries, manifest.Layers, nil
}

// prioritized sorts a recording by layer.
func prioritized(entries []recorder.Entry, layers []ocispec.Descriptor) (map[digest.Digest][]estargz.Option, error) {
	paths := map[digest.Digest][]string{}
	for _, entry := range entries {
		if entry.LayerIndex == nil || *entry.LayerIndex >= len(layers) {
			return nil, fmt.Errorf("the recording names no layer for %q", entry.Path)
		}
		layer := layers[*entry.LayerIndex].Digest
		paths[layer] = append(paths[layer], entry.Path)
	}
	options := map[digest.Digest][]estargz.Option{}
	for layer, files := range paths {
		options[layer] = []estargz.Option{estargz.WithPrioritizedFiles(files)}
	}
	return options, nil
}
