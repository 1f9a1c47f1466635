// Prints digests of what encoders of one version write, for golden/klauspost.txt. make.sh runs it for each version.
//
//	go run . NAME LEVELS HOWS CORPORA
//
// NAME is "go", for Go's own compress/flate, or the version of klauspost/compress, which is only printed. HOWS are the ways of compressing, some of
// whole, flushed, dictionary, pgzip and pgzip-small.
package main

import (
	"bytes"
	goflate "compress/flate"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/pgzip"
)

// The header of pgzip without a name, and the trailer: the table is of the deflate stream between them.
const header, trailer = 10, 8

// After how many bytes a flush comes, again and again: around each limit that the encoders have.
var flushes = []int{1, 32, 33, 127, 128, 300, 0, 5_000, 65_535, 70_000, 12, 65_274, 262, 65_273, 200_000, 32_506, 16_384, 16_385}

type encoder interface {
	io.WriteCloser
	Flush() error
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func create(name, how string, level int, out io.Writer) encoder {
	var dictionary []byte
	switch how {
	case "dictionary":
		for index := range 20_000 {
			dictionary = append(dictionary, "a dictionary of many words, 0000"[index%31], byte(index*index/777))
		}
	case "pgzip", "pgzip-small":
		writer, err := pgzip.NewWriterLevel(out, level)
		check(err)
		if how == "pgzip-small" {
			check(writer.SetConcurrency(100_000, 2))
		}
		return writer
	}
	if name == "go" {
		writer, err := goflate.NewWriterDict(out, level, dictionary)
		check(err)
		return writer
	}
	writer, err := flate.NewWriterDict(out, level, dictionary)
	check(err)
	return writer
}

func compress(name, how string, level int, plain []byte) []byte {
	var out bytes.Buffer
	writer := create(name, how, level, &out)
	isPgzip := strings.HasPrefix(how, "pgzip")
	for round := 0; (how == "flushed" || how == "pgzip-small") && len(plain) > 0; round++ {
		piece := plain[:min(flushes[round%len(flushes)], len(plain))]
		plain = plain[len(piece):]
		_, err := writer.Write(piece)
		check(err)
		// pgzip's small blocks are interrupted now and then only.
		if !isPgzip || round%7 == 0 {
			check(writer.Flush())
		}
	}
	_, err := writer.Write(plain)
	check(err)
	check(writer.Close())
	if isPgzip {
		return out.Bytes()[header : out.Len()-trailer]
	}
	return out.Bytes()
}

func main() {
	name, levels, hows := os.Args[1], strings.Fields(os.Args[2]), strings.Fields(os.Args[3])
	corpora, err := filepath.Glob(filepath.Join(os.Args[4], "*"))
	check(err)
	shown := name
	if name == "go" {
		shown = strings.TrimPrefix(runtime.Version(), "go")
		shown = "go-" + shown
	}
	for _, level := range levels {
		for _, how := range hows {
			for _, path := range corpora {
				plain, err := os.ReadFile(path)
				check(err)
				if how != "whole" && len(plain) < 20 {
					continue
				}
				number, err := strconv.Atoi(level)
				check(err)
				out := compress(name, how, number, plain)
				digest := sha256.Sum256(out)
				fmt.Println(shown, how, level, filepath.Base(path), len(out), hex.EncodeToString(digest[:]))
			}
		}
	}
}
