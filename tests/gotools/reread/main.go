// reread SEED FILE PAGES PAUSE reads pages of FILE at random, each from its file system and not from the page cache, and compares each
// with what it must hold: words that follow from SEED and where they are. It counts pages in /reads. A wrong page is written to /wrong,
// and ends it. Built without cgo it is one static file, so that it is all that an image needs.
package main

import (
	"encoding/binary"
	"fmt"
	"math/rand"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

const page = 4096

// Advice not to keep what was read (posix_fadvise(2), x86-64).
const (
	fadvise  = 221
	dontNeed = 4
)

// word is splitmix64 of the seed and a number; tests/src/cases/containerd/many.rs has the same.
func word(seed, number uint64) uint64 {
	z := seed + (number+1)*0x9e3779b97f4a7c15
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb
	return z ^ (z >> 31)
}

func main() {
	// The first process of a process namespace ignores what it does not handle.
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGTERM, syscall.SIGINT)
	if err := reread(told); err != nil {
		fmt.Fprintln(os.Stderr, err)
		_ = os.WriteFile("/wrong", []byte(err.Error()+"\n"), 0o644)
		os.Exit(1)
	}
}

func reread(told <-chan os.Signal) error {
	if len(os.Args) != 5 {
		return fmt.Errorf("reread SEED FILE PAGES PAUSE")
	}
	seed, err := strconv.ParseUint(os.Args[1], 10, 64)
	if err != nil {
		return err
	}
	pages, err := strconv.Atoi(os.Args[3])
	if err != nil {
		return err
	}
	pause, err := time.ParseDuration(os.Args[4])
	if err != nil {
		return err
	}
	file, err := os.Open(os.Args[2])
	if err != nil {
		return err
	}
	counter, err := os.OpenFile("/reads", os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	bytes, count := make([]byte, page), make([]byte, 8)
	for reads := uint64(1); ; reads++ {
		number := uint64(rand.Intn(pages))
		if _, _, errno := syscall.Syscall6(fadvise, file.Fd(), 0, 0, dontNeed, 0, 0); errno != 0 {
			return fmt.Errorf("advise: %w", errno)
		}
		if _, err := file.ReadAt(bytes, int64(number*page)); err != nil {
			return fmt.Errorf("read page %d: %w", number, err)
		}
		for place := uint64(0); place < page/8; place++ {
			found := binary.LittleEndian.Uint64(bytes[place*8:])
			if wanted := word(seed, number*page/8+place); found != wanted {
				return fmt.Errorf("page %d, word %d: %x in place of %x", number, place, found, wanted)
			}
		}
		binary.LittleEndian.PutUint64(count, reads)
		if _, err := counter.WriteAt(count, 0); err != nil {
			return err
		}
		select {
		case <-told:
			return nil
		case <-time.After(pause):
		}
	}
}
