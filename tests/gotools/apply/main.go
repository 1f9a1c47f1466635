// apply unpacks layer blobs, lowest first, into a directory with containerd's own code: apply DIRECTORY BLOB...
package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/containerd/containerd/v2/pkg/archive"
	"github.com/containerd/containerd/v2/pkg/archive/compression"
)

func main() {
	for _, blob := range os.Args[2:] {
		if err := apply(os.Args[1], blob); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", blob, err)
			os.Exit(1)
		}
	}
}

func apply(directory, name string) error {
	blob, err := os.Open(name)
	if err != nil {
		return err
	}
	defer blob.Close()
	plain, err := compression.DecompressStream(blob)
	if err != nil {
		return err
	}
	defer plain.Close()
	if _, err := archive.Apply(context.Background(), directory, plain); err != nil {
		return err
	}
	// Bytes that follow the end of the archive belong to the blob too.
	_, err = io.Copy(io.Discard, plain)
	return err
}
