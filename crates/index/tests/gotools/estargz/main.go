// estargz makes a layer of a tar file with stargz-snapshotter's own library, as eStargz (gzip) or as its flavour of
// zstd:chunked (zstd), and prints the layer's annotations, one KEY=VALUE in a line:
// estargz gzip|zstd IN.tar OUT CHUNK_SIZE MIN_CHUNK_SIZE [PRIORITIZED_FILE...]
package main

import (
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/containerd/stargz-snapshotter/estargz"
	"github.com/containerd/stargz-snapshotter/estargz/zstdchunked"
	"github.com/klauspost/compress/zstd"
)

type zstdCompression struct {
	*zstdchunked.Compressor
	*zstdchunked.Decompressor
}

func main() {
	if err := convert(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func convert(arguments []string) error {
	in, err := os.Open(arguments[1])
	if err != nil {
		return err
	}
	defer in.Close()
	stat, err := in.Stat()
	if err != nil {
		return err
	}
	chunkSize, err := strconv.Atoi(arguments[3])
	if err != nil {
		return err
	}
	minChunkSize, err := strconv.Atoi(arguments[4])
	if err != nil {
		return err
	}
	options := []estargz.Option{estargz.WithChunkSize(chunkSize), estargz.WithMinChunkSize(minChunkSize)}
	if files := arguments[5:]; len(files) > 0 {
		options = append(options, estargz.WithPrioritizedFiles(files))
	}
	annotations := map[string]string{}
	if arguments[0] == "zstd" {
		compressor := &zstdchunked.Compressor{CompressionLevel: zstd.SpeedDefault, Metadata: annotations}
		options = append(options, estargz.WithCompression(&zstdCompression{compressor, &zstdchunked.Decompressor{}}))
	}
	blob, err := estargz.Build(io.NewSectionReader(in, 0, stat.Size()), options...)
	if err != nil {
		return err
	}
	defer blob.Close()
	out, err := os.Create(arguments[2])
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, blob); err != nil {
		return err
	}
	annotations[estargz.TOCJSONDigestAnnotation] = blob.TOCDigest().String()
	for key, value := range annotations {
		fmt.Printf("%s=%s\n", key, value)
	}
	return out.Close()
}
