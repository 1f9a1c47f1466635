// Compresses a file as layer tools do: go run . ENCODER LEVEL INPUT OUTPUT
//
// ENCODER: go (compress/gzip of the Go that runs it), klauspost, pgzip, zstd (klauspost's; levels 1 to 4).
package main

import (
	"compress/gzip"
	"io"
	"log"
	"os"
	"strconv"

	fast "github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/klauspost/pgzip"
)

func writer(encoder string, level int, to io.Writer) (io.WriteCloser, error) {
	switch encoder {
	case "go":
		return gzip.NewWriterLevel(to, level)
	case "klauspost":
		return fast.NewWriterLevel(to, level)
	case "pgzip":
		return pgzip.NewWriterLevel(to, level)
	case "zstd":
		return zstd.NewWriter(to, zstd.WithEncoderLevel(zstd.EncoderLevel(level)))
	}
	log.Fatalf("there is no encoder %s", encoder)
	return nil, nil
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	if len(os.Args) != 5 {
		log.Fatal("usage: ENCODER LEVEL INPUT OUTPUT")
	}
	level, err := strconv.Atoi(os.Args[2])
	check(err)
	input, err := os.Open(os.Args[3])
	check(err)
	output, err := os.Create(os.Args[4])
	check(err)
	encoder, err := writer(os.Args[1], level, output)
	check(err)
	_, err = io.Copy(encoder, input)
	check(err)
	check(encoder.Close())
	check(output.Close())
}
