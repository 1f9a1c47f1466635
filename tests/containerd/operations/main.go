// operations measures how many snapshots a snapshotter prepares, tells the mounts of, commits, and so on in a second.
//
//	operations SNAPSHOTTER CALLS CLIENTS [SOCKET]
//
// It calls containerd's snapshots service at CONTAINERD_ADDRESS, in CONTAINERD_NAMESPACE, or the snapshotter itself at SOCKET.
// Each operation is called CALLS times, by CLIENTS at once over one connection, and is over for all before the next one
// begins. Prints an object of JSON: for each operation its calls, how long all of them took, and what single ones took.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	snapshotsapi "github.com/containerd/containerd/api/services/snapshots/v1"
	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/core/snapshots/proxy"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// mostListed is how many snapshots are listed in all at most.
const mostListed = 2_000_000

// measured is what is printed of one operation.
type measured struct {
	Calls   int     `json:"calls"`
	Seconds float64 `json:"seconds"`
	Median  float64 `json:"median_us"`
	Slow    float64 `json:"p99_us"`
}

func main() {
	if len(os.Args) != 4 && len(os.Args) != 5 {
		fmt.Fprintln(os.Stderr, "operations SNAPSHOTTER CALLS CLIENTS [SOCKET]")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3], slices.Concat(os.Args[4:], []string{""})[0]); err != nil {
		fmt.Fprintln(os.Stderr, "operations:", err)
		os.Exit(1)
	}
}

func run(name, callsText, clientsText, socket string) error {
	calls, err := strconv.Atoi(callsText)
	if err != nil {
		return err
	}
	clients, err := strconv.Atoi(clientsText)
	if err != nil {
		return err
	}
	ctx := namespaces.WithNamespace(context.Background(), os.Getenv("CONTAINERD_NAMESPACE"))
	var snapshotter snapshots.Snapshotter
	if socket == "" {
		client, err := containerd.New(os.Getenv("CONTAINERD_ADDRESS"))
		if err != nil {
			return err
		}
		defer client.Close()
		// Contents that nothing refers to would be collected meanwhile.
		leased, done, err := client.WithLease(ctx)
		if err != nil {
			return err
		}
		defer done(ctx)
		ctx, snapshotter = leased, client.SnapshotService(name)
	} else {
		connection, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return err
		}
		defer connection.Close()
		snapshotter = proxy.NewSnapshotter(snapshotsapi.NewSnapshotsClient(connection), name)
	}
	if err := makeBase(ctx, snapshotter); err != nil {
		return fmt.Errorf("make the parent of all: %w", err)
	}
	results, err := measure(ctx, snapshotter, calls, clients)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(results)
}

// makeBase commits "base", a layer with one file.
func makeBase(ctx context.Context, snapshotter snapshots.Snapshotter) error {
	mounts, err := snapshotter.Prepare(ctx, "base-active", "")
	if err != nil {
		return err
	}
	err = mount.WithTempMount(ctx, mounts, func(root string) error {
		return os.WriteFile(filepath.Join(root, "file"), []byte("content"), 0o644)
	})
	if err != nil {
		return err
	}
	return snapshotter.Commit(ctx, "base", "base-active")
}

func measure(ctx context.Context, snapshotter snapshots.Snapshotter, calls, clients int) (map[string]measured, error) {
	active := func(number int) string { return fmt.Sprintf("active-%d", number) }
	committed := func(number int) string { return fmt.Sprintf("committed-%d", number) }
	// Of very many snapshots few are enough.
	lists := max(min(calls/10, mostListed/calls), 1)
	operations := []struct {
		name  string
		calls int
		call  func(number int) error
	}{
		{"prepare", calls, func(number int) error {
			_, err := snapshotter.Prepare(ctx, active(number), "base")
			return err
		}},
		{"mounts", calls, func(number int) error {
			_, err := snapshotter.Mounts(ctx, active(number))
			return err
		}},
		{"stat", calls, func(number int) error {
			_, err := snapshotter.Stat(ctx, active(number))
			return err
		}},
		{"usage", calls, func(number int) error {
			_, err := snapshotter.Usage(ctx, active(number))
			return err
		}},
		{"commit", calls, func(number int) error {
			return snapshotter.Commit(ctx, committed(number), active(number))
		}},
		// Of all these snapshots.
		{"walk", lists, func(int) error {
			seen := 0
			err := snapshotter.Walk(ctx, func(context.Context, snapshots.Info) error {
				seen++
				return nil
			})
			if err == nil && seen <= calls {
				err = fmt.Errorf("%d snapshots instead of %d", seen, calls+1)
			}
			return err
		}},
		// One by its chain, as containerd does for each lazy layer; none has it, so all are looked at.
		{"find", lists, func(number int) error {
			filter := fmt.Sprintf("labels.%q==chain-%d", "containerd.io/snapshot.ref", number)
			return snapshotter.Walk(ctx, func(_ context.Context, info snapshots.Info) error {
				return fmt.Errorf("%s was found by %s", info.Name, filter)
			}, filter)
		}},
		{"remove", calls, func(number int) error {
			return snapshotter.Remove(ctx, committed(number))
		}},
	}
	results := map[string]measured{}
	for _, operation := range operations {
		found, err := repeat(operation.calls, clients, operation.call)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", operation.name, err)
		}
		results[operation.name] = found
	}
	return results, snapshotter.Remove(ctx, "base")
}

// repeat makes calls with the numbers from 0, by several clients at once.
func repeat(calls, clients int, call func(number int) error) (measured, error) {
	took := make([]float64, calls)
	failed := make(chan error, clients)
	var next atomic.Int64
	var all sync.WaitGroup
	began := time.Now()
	for range clients {
		all.Go(func() {
			for number := int(next.Add(1)) - 1; number < calls; number = int(next.Add(1)) - 1 {
				start := time.Now()
				if err := call(number); err != nil {
					failed <- err
					return
				}
				took[number] = float64(time.Since(start).Nanoseconds()) / 1e3
			}
		})
	}
	all.Wait()
	seconds := time.Since(began).Seconds()
	close(failed)
	if err := <-failed; err != nil {
		return measured{}, err
	}
	slices.Sort(took)
	return measured{calls, seconds, took[calls/2], took[calls*99/100]}, nil
}
