// zstdchunked makes a zstd:chunked layer of a tar file with containers/storage's own library and prints its
// annotations, one KEY=VALUE in a line: zstdchunked IN.tar OUT
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/containers/storage/pkg/chunked/compressor"
)

func main() {
	if err := convert(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func convert(inName, outName string) error {
	in, err := os.Open(inName)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(outName)
	if err != nil {
		return err
	}
	annotations := map[string]string{}
	writer, err := compressor.ZstdCompressor(out, annotations, nil)
	if err != nil {
		return err
	}
	if _, err := io.Copy(writer, in); err != nil {
		return err
	}
	if err := writer.Close(); err != nil {
		return err
	}
	for key, value := range annotations {
		fmt.Printf("%s=%s\n", key, value)
	}
	return out.Close()
}
