// estargz makes an eStargz layer of a tar file with stargz-snapshotter's own library and prints the digest of its
// table of contents: estargz IN.tar OUT CHUNK_SIZE MIN_CHUNK_SIZE [PRIORITIZED_FILE...]
package main

import (
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/containerd/stargz-snapshotter/estargz"
)

func main() {
	if err := convert(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func convert(arguments []string) error {
	in, err := os.Open(arguments[0])
	if err != nil {
		return err
	}
	defer in.Close()
	stat, err := in.Stat()
	if err != nil {
		return err
	}
	chunkSize, err := strconv.Atoi(arguments[2])
	if err != nil {
		return err
	}
	minChunkSize, err := strconv.Atoi(arguments[3])
	if err != nil {
		return err
	}
	options := []estargz.Option{estargz.WithChunkSize(chunkSize), estargz.WithMinChunkSize(minChunkSize)}
	if files := arguments[4:]; len(files) > 0 {
		options = append(options, estargz.WithPrioritizedFiles(files))
	}
	blob, err := estargz.Build(io.NewSectionReader(in, 0, stat.Size()), options...)
	if err != nil {
		return err
	}
	defer blob.Close()
	out, err := os.Create(arguments[1])
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, blob); err != nil {
		return err
	}
	fmt.Println(blob.TOCDigest())
	return out.Close()
}
