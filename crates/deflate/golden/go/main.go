// Makes golden/go.txt: digests of what Go's compress/flate writes. Run it with the Go whose encoder the table is of, in a folder with the corpora
// (`cargo run --package xebec-testkit --example corpus CORPORA`):
//
//	go run . CORPORA > ../go.txt
package main

import (
	"compress/flate"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"log"
	"os"
	"path/filepath"
	"runtime"
)

// After how many bytes a flush comes, again and again: around each limit that the encoder has.
var flushes = []int{1, 16, 17, 127, 128, 300, 0, 5_000, 65_535, 70_000, 3, 65_274, 262, 65_273, 200_000, 32_506, 2}

type counter struct {
	hash.Hash
	length int
}

func (c *counter) Write(bytes []byte) (int, error) {
	c.length += len(bytes)
	return c.Hash.Write(bytes)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func compress(level int, plain []byte, flushing bool) *counter {
	out := &counter{Hash: sha256.New()}
	writer, err := flate.NewWriter(out, level)
	check(err)
	for round := 0; flushing && len(plain) > 0; round++ {
		piece := plain[:min(flushes[round%len(flushes)], len(plain))]
		plain = plain[len(piece):]
		_, err = writer.Write(piece)
		check(err)
		check(writer.Flush())
	}
	_, err = writer.Write(plain)
	check(err)
	check(writer.Close())
	return out
}

func main() {
	fmt.Printf("# compress/flate of %s: level, corpus, flushed or whole, length, SHA-256\n", runtime.Version())
	names, err := filepath.Glob(filepath.Join(os.Args[1], "*"))
	check(err)
	for level := -2; level <= 9; level++ {
		for _, name := range names {
			plain, err := os.ReadFile(name)
			check(err)
			for _, how := range []string{"whole", "flushed"} {
				corpus := filepath.Base(name)
				if how == "flushed" && (len(plain) < 1000 || corpus == "tar") {
					continue
				}
				out := compress(level, plain, how == "flushed")
				fmt.Println(level, corpus, how, out.length, hex.EncodeToString(out.Sum(nil)))
			}
		}
	}
}
