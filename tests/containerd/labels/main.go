// labels pulls an image as nerdctl and Docker do: by containerd's client, with the handler that tells the snapshotter
// which image and which layer it is asked for. `ctr` of containerd 1.7 does not tell it.
//
//	labels SNAPSHOTTER IMAGE     from a registry without TLS, by containerd at CONTAINERD_ADDRESS, in CONTAINERD_NAMESPACE
package main

import (
	"context"
	"fmt"
	"os"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/snapshotters"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "labels SNAPSHOTTER IMAGE")
		os.Exit(2)
	}
	if err := pull(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func pull(snapshotter, reference string) error {
	client, err := containerd.New(os.Getenv("CONTAINERD_ADDRESS"))
	if err != nil {
		return err
	}
	defer client.Close()
	ctx := namespaces.WithNamespace(context.Background(), os.Getenv("CONTAINERD_NAMESPACE"))
	hosts := docker.ConfigureDefaultRegistries(docker.WithPlainHTTP(docker.MatchAllHosts))
	image, err := client.Pull(ctx, reference,
		containerd.WithPullUnpack,
		containerd.WithPullSnapshotter(snapshotter),
		containerd.WithResolver(docker.NewResolver(docker.ResolverOptions{Hosts: hosts})),
		containerd.WithImageHandlerWrapper(snapshotters.AppendInfoHandlerWrapper(reference)),
	)
	if err != nil {
		return err
	}
	fmt.Println(image.Target().Digest)
	return nil
}
