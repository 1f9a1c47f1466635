// Package suite runs containerd's own tests of snapshotters against one that is served on a socket.
//
// Compiled by `go test -c`; scripts/e2e.sh does, and the cases `containerd/suite` start it. All tests of a run share the
// snapshotter, as they do when containerd tests itself, and use names that only fit once: each run needs one that is empty.
package suite

import (
	"context"
	"os"
	"slices"
	"testing"

	snapshotsapi "github.com/containerd/containerd/api/services/snapshots/v1"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/core/snapshots/proxy"
	"github.com/containerd/containerd/v2/core/snapshots/testsuite"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// The name by which the suite knows the snapshotter. A snapshotter of this name mounts overlays, on which a directory of a lower layer
// cannot be renamed without "redirect_dir", so the suite leaves that one step out.
const kind = "overlayfs"

// connect gives a client of the snapshotter at XEBEC_SNAPSHOTTER, the path of its socket.
func connect() (snapshots.Snapshotter, func() error, error) {
	connection, err := grpc.NewClient(
		"unix://"+os.Getenv("XEBEC_SNAPSHOTTER"),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
	)
	if err != nil {
		return nil, nil, err
	}
	return proxy.NewSnapshotter(snapshotsapi.NewSnapshotsClient(connection), kind), connection.Close, nil
}

func TestSnapshotter(t *testing.T) {
	testsuite.SnapshotterSuite(t, kind, func(context.Context, string) (snapshots.Snapshotter, func() error, error) {
		return connect()
	})
}

// TestRemoveAll removes what the suite left, children first, as garbage collection does: nothing may resist. It runs
// after the suite, whose tests are all over when TestSnapshotter is.
func TestRemoveAll(t *testing.T) {
	ctx := t.Context()
	snapshotter, closeConnection, err := connect()
	if err != nil {
		t.Fatal(err)
	}
	defer closeConnection()
	for {
		var names, parents []string
		err := snapshotter.Walk(ctx, func(_ context.Context, info snapshots.Info) error {
			names, parents = append(names, info.Name), append(parents, info.Parent)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(names) == 0 {
			break
		}
		leaves := slices.DeleteFunc(names, func(name string) bool { return slices.Contains(parents, name) })
		if len(leaves) == 0 {
			t.Fatal("every snapshot is the parent of another")
		}
		for _, name := range leaves {
			if err := snapshotter.Remove(ctx, name); err != nil {
				t.Fatalf("remove %q: %v", name, err)
			}
		}
	}
	if cleaner, ok := snapshotter.(snapshots.Cleaner); !ok {
		t.Fatal("the client cannot clean up")
	} else if err := cleaner.Cleanup(ctx); err != nil {
		t.Fatalf("clean up: %v", err)
	}
}
