// offer asks for snapshots of layers, as clients of containerd do that say which image they pull.
//
//	offer one KEY PARENT NAME=VALUE...    with these labels; prints what becomes of it, as gRPC calls that
//	offer much BYTES                      with that many bytes of labels; prints what becomes of it, and of telling it again
//	offer many SOCKET REGISTRY COUNT      of the snapshotter at SOCKET, over one connection as containerd has it: layers of
//	                                      COUNT images, and COUNT times that of one more; asks for what is there meanwhile,
//	                                      and prints an object of JSON
//
// One and much ask containerd at CONTAINERD_ADDRESS, in CONTAINERD_NAMESPACE, for its snapshotter CONTAINERD_SNAPSHOTTER.
// The lease "offers", which must be there, keeps what is made meanwhile, as that of a pull does.
// It removes all that it made.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	snapshots "github.com/containerd/containerd/api/services/snapshots/v1"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/defaults"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// patience is how long a call may take.
const patience = 5 * time.Minute

// The labels that say which image and which layer a snapshot is for.
const (
	target    = "containerd.io/snapshot.ref"
	reference = "containerd.io/snapshot/cri.image-ref"
	manifest  = "containerd.io/snapshot/cri.manifest-digest"
	layer     = "containerd.io/snapshot/cri.layer-digest"
)

type asker struct {
	client      snapshots.SnapshotsClient
	snapshotter string
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "offer:", err)
		os.Exit(1)
	}
}

func run(words []string) error {
	if len(words) < 2 {
		return errors.New("offer one|much|many ...")
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	name, rest, socket := words[0], words[1:], os.Getenv("CONTAINERD_ADDRESS")
	if name == "many" {
		socket = rest[0]
	}
	connection, err := grpc.NewClient("unix://"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(
			grpc.MaxCallRecvMsgSize(defaults.DefaultMaxRecvMsgSize), grpc.MaxCallSendMsgSize(defaults.DefaultMaxSendMsgSize)),
	)
	if err != nil {
		return err
	}
	defer connection.Close()
	a := asker{snapshots.NewSnapshotsClient(connection), os.Getenv("CONTAINERD_SNAPSHOTTER")}
	switch {
	case name == "one" && len(rest) >= 2:
		return a.one(leased(ctx), rest[0], rest[1], rest[2:])
	case name == "much" && len(rest) == 1:
		return a.much(leased(ctx), rest[0])
	case name == "many" && len(rest) == 3:
		return a.many(ctx, rest[1], rest[2])
	}
	return fmt.Errorf("cannot do %q", words)
}

func leased(ctx context.Context) context.Context {
	return leases.WithLease(namespaces.WithNamespace(ctx, os.Getenv("CONTAINERD_NAMESPACE")), "offers")
}

func (a asker) prepare(ctx context.Context, key, parent string, labels map[string]string) error {
	_, err := a.client.Prepare(ctx, &snapshots.PrepareSnapshotRequest{
		Snapshotter: a.snapshotter, Key: key, Parent: parent, Labels: labels,
	})
	return err
}

func (a asker) remove(ctx context.Context, key string) error {
	_, err := a.client.Remove(ctx, &snapshots.RemoveSnapshotRequest{Snapshotter: a.snapshotter, Key: key})
	return err
}

func (a asker) stat(ctx context.Context, key string) (*snapshots.Info, error) {
	answer, err := a.client.Stat(ctx, &snapshots.StatSnapshotRequest{Snapshotter: a.snapshotter, Key: key})
	return answer.GetInfo(), err
}

// list counts snapshots, and those of a key.
func (a asker) list(ctx context.Context, key string) (all, found int, err error) {
	stream, err := a.client.List(ctx, &snapshots.ListSnapshotsRequest{Snapshotter: a.snapshotter})
	if err != nil {
		return 0, 0, err
	}
	for {
		block, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return all, found, nil
		} else if err != nil {
			return 0, 0, err
		}
		for _, info := range block.Info {
			all++
			if info.Name == key {
				found++
			}
		}
	}
}

func (a asker) one(ctx context.Context, key, parent string, words []string) error {
	labels := map[string]string{}
	for _, word := range words {
		// Names have no "=".
		label, value, _ := strings.Cut(word, "=")
		labels[label] = value
	}
	err := a.prepare(ctx, key, parent, labels)
	fmt.Println(status.Code(err))
	if err != nil {
		fmt.Println(status.Convert(err).Message())
		return nil
	}
	return a.remove(ctx, key)
}

func (a asker) much(ctx context.Context, text string) error {
	bytes, err := strconv.Atoi(text)
	if err != nil {
		return err
	}
	labels := map[string]string{}
	for number := range bytes / 4000 {
		// A label that does not begin so is containerd's only.
		labels[fmt.Sprintf("containerd.io/snapshot/much-%08d", number)] = strings.Repeat("x", 3968)
	}
	err = a.prepare(ctx, "much", "", labels)
	fmt.Println(status.Code(err))
	if err != nil {
		return nil
	}
	info, err := a.stat(ctx, "much")
	if err != nil {
		return err
	}
	if len(info.Labels) != len(labels) {
		return fmt.Errorf("%d labels of %d are told", len(info.Labels), len(labels))
	}
	if _, found, err := a.list(ctx, "much"); err != nil || found != 1 {
		return fmt.Errorf("listed %d times: %w", found, err)
	}
	return a.remove(ctx, "much")
}

// told is what is printed of many.
type told struct {
	// How many calls ended so.
	Codes map[string]int `json:"codes"`
	// How long the first and the last took, in seconds.
	Quickest float64 `json:"quickest"`
	Slowest  float64 `json:"slowest"`
	// How often what is there was asked for meanwhile, and how long one call took at most.
	Others int     `json:"others"`
	Other  float64 `json:"other"`
}

func (a asker) many(ctx context.Context, registry, countText string) error {
	count, err := strconv.Atoi(countText)
	if err != nil {
		return err
	}
	if err := a.prepare(ctx, "here", "", nil); err != nil {
		return err
	}
	result := told{Codes: map[string]int{}, Quickest: patience.Seconds()}
	var lock sync.Mutex
	var all sync.WaitGroup
	for number := range 2 * count {
		all.Go(func() {
			image := min(number, count)
			some := func(what string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(fmt.Append(nil, what, image))) }
			began := time.Now()
			key := fmt.Sprintf("extract-%d", number)
			err := a.prepare(ctx, key, "", map[string]string{
				target: some("chain"), reference: fmt.Sprintf("%s/app-%d:1", registry, image),
				manifest: some("manifest"), layer: some("layer"),
			})
			took := time.Since(began).Seconds()
			lock.Lock()
			defer lock.Unlock()
			result.Codes[status.Code(err).String()]++
			result.Quickest, result.Slowest = min(result.Quickest, took), max(result.Slowest, took)
		})
	}
	ended := make(chan struct{})
	go func() { all.Wait(); close(ended) }()
	for {
		select {
		case <-ended:
			return errors.Join(a.clean(ctx, 2*count), json.NewEncoder(os.Stdout).Encode(result))
		case <-time.After(20 * time.Millisecond):
		}
		for _, call := range []func() error{
			func() error { _, err := a.stat(ctx, "here"); return err },
			func() error { _, _, err := a.list(ctx, ""); return err },
			func() error {
				_, err := a.client.Mounts(ctx, &snapshots.MountsRequest{Key: "here"})
				return err
			},
			func() error {
				_, err := a.client.Usage(ctx, &snapshots.UsageRequest{Key: "here"})
				return err
			},
			func() error { return errors.Join(a.prepare(ctx, "other", "", nil), a.remove(ctx, "other")) },
		} {
			began := time.Now()
			if err := call(); err != nil {
				return err
			}
			result.Others, result.Other = result.Others+1, max(result.Other, time.Since(began).Seconds())
		}
	}
}

func (a asker) clean(ctx context.Context, count int) error {
	err := a.remove(ctx, "here")
	for number := range count {
		if removed := a.remove(ctx, fmt.Sprintf("extract-%d", number)); status.Code(removed) != codes.NotFound {
			err = errors.Join(err, removed)
		}
	}
	return err
}
