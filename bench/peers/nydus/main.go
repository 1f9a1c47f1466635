// Command peer-nydus is made of the converter of nydus-snapshotter, which the Go proxy offers; nydus's own `nydusify`, which it
// does not, calls the same one. The snapshotter itself, containerd-nydus-grpc, is built of the same module as it is (`tool` in
// go.mod), and nydusd and nydus-image of crates (Cargo.lock).
//
//	peer-nydus convert FROM TO BUILDER [FILE]
//	                     an image that containerd has, as RAFS version 6, by nydus-image (BUILDER); FILE names the files that are
//	                     prefetched, a line each (default: "/", all of them)
//	peer-nydus version   what it is made of
//
// containerd is found by CONTAINERD_ADDRESS and CONTAINERD_NAMESPACE.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/images/converter"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	nydus "github.com/containerd/nydus-snapshotter/pkg/converter"
	"github.com/containerd/platforms"
)

const module = "github.com/containerd/nydus-snapshotter"

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "peer-nydus:", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	switch {
	case len(arguments) == 4 && arguments[0] == "convert":
		return convert(arguments[1], arguments[2], arguments[3], "")
	case len(arguments) == 5 && arguments[0] == "convert":
		files, err := os.ReadFile(arguments[4])
		if err != nil {
			return err
		}
		// An empty list would be taken for all files.
		if strings.TrimSpace(string(files)) == "" {
			return fmt.Errorf("%s names no file", arguments[4])
		}
		return convert(arguments[1], arguments[2], arguments[3], string(files))
	case len(arguments) == 1 && arguments[0] == "version":
		return version()
	}
	return errors.New("convert FROM TO BUILDER [FILE], or version")
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

func convert(from, to, builder, prefetched string) error {
	client, err := containerd.New(os.Getenv("CONTAINERD_ADDRESS"))
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx = namespaces.WithNamespace(ctx, os.Getenv("CONTAINERD_NAMESPACE"))
	ctx, done, err := client.WithLease(ctx)
	if err != nil {
		return err
	}
	defer done(ctx)
	// The options that nydusify uses when it is told nothing.
	pack := nydus.PackOption{BuilderPath: builder, FsVersion: "6", PrefetchPatterns: prefetched}
	merge := nydus.MergeOption{BuilderPath: builder, FsVersion: "6", PrefetchPatterns: prefetched, OCI: true}
	// Layers become blobs, and their metadata one more layer of the manifest.
	convert := converter.IndexConvertFuncWithHook(nydus.LayerConvertFunc(pack), true, platforms.DefaultStrict(),
		converter.ConvertHooks{PostConvertHook: nydus.ConvertHookFunc(merge)})
	image, err := client.ImageService().Get(ctx, from)
	if err != nil {
		return err
	}
	converted, err := convert(ctx, client.ContentStore(), image.Target)
	if err != nil {
		return err
	}
	if converted == nil {
		return fmt.Errorf("%s has nothing to convert", from)
	}
	_, err = client.ImageService().Create(ctx, images.Image{Name: to, Target: *converted})
	return err
}
